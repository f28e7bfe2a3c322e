"""Heads side by side: each worker computes whole heads, its products in one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

__all__ = ["over_heads", "workers_for"]


def workers_for(device: torch.device, heads: int) -> int:
    """How many threads work on so many heads; 0 means that the caller does it all."""
    if device.type != "cpu" or not torch.backends.openmp.is_available():
        return 0
    if _get_current_dispatch_mode() is not None:
        return 0  # other threads would not be under it
    return min(torch.get_num_threads(), heads)


class _Threads:
    """Torch's number of threads, which is the whole process's: set again after the last call.

    Calls overlap where the user's own threads make them; what a later one finds is no longer the
    user's number.
    """

    def __init__(self) -> None:
        self._lock, self._calls, self._number = threading.Lock(), 0, 0

    def __enter__(self) -> int:
        with self._lock:
            if not self._calls:
                self._number = torch.get_num_threads()
            self._calls += 1
            return self._number

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._calls -= 1
            # OpenMP has this number per thread, but torch also hands the last one to new threads.
            torch.set_num_threads(self._number)


_THREADS = _Threads()


def over_heads(work: Callable[[range], None], device: torch.device, heads: int) -> None:
    """Call `work` with the heads of each worker.

    A block is too small to be shared: threads that meet after each of its operations wait for one
    another longer than they compute. Which head a worker has does not change what it computes, so
    that results do not depend on the number of workers.
    """
    workers = workers_for(device, heads)
    # What else the caller's thread has set is set in it alone.
    inference = torch.is_inference_mode_enabled()

    def run(first: int, step: int) -> None:
        with torch.inference_mode(inference), torch.no_grad():
            work(range(first, heads, step))

    if not workers:
        run(0, 1)
        return
    with _THREADS as threads:

        def begin() -> None:
            torch.set_num_threads(max(1, threads // workers))
            # Weights of keys far away become numbers so small that each costs a hundred others.
            torch.set_flush_denormal(True)

        with ThreadPoolExecutor(workers, initializer=begin) as pool:
            try:
                running = [pool.submit(run, first, workers) for first in range(workers)]
            except RuntimeError:  # the interpreter is ending, and starts no more threads
                running = []
        for future in running:
            future.result()
    if not running:
        run(0, 1)
