"""Heads side by side: each worker computes whole heads, its products in one thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

__all__ = ["over_heads", "workers_for"]


def workers_for(device: torch.device, heads: int) -> int:
    """How many threads work on so many heads; 0 means that the caller does it all."""
    if device.type != "cpu" or not torch.backends.openmp.is_available():
        return 0
    return min(torch.get_num_threads(), heads)


def over_heads(work: Callable[[range], None], device: torch.device, heads: int) -> None:
    """Call `work` with the heads of each worker.

    A block is too small to be shared: threads that meet after each of its operations wait for one
    another longer than they compute. Which head a worker has does not change what it computes, so
    that results do not depend on the number of workers.
    """
    workers, threads = workers_for(device, heads), torch.get_num_threads()
    if not workers:
        with torch.no_grad():
            work(range(heads))
        return
    # What else the caller's thread has set is set in it alone.
    inference = torch.is_inference_mode_enabled()

    def begin() -> None:
        torch.set_num_threads(max(1, threads // workers))
        # Weights of keys far away become numbers so small that each costs a hundred others.
        torch.set_flush_denormal(True)

    def run(first: int) -> None:
        with torch.inference_mode(inference), torch.no_grad():
            work(range(first, heads, workers))

    try:
        with ThreadPoolExecutor(workers, initializer=begin) as pool:
            list(pool.map(run, range(workers)))
    finally:
        # OpenMP has this number per thread, but torch also hands the last one set to new threads.
        torch.set_num_threads(threads)
