"""Peaks of memory, each in a process of its own: what a call holds beyond inputs and parameters.

On a CPU the process's high-water mark counts, which Linux lets a process begin anew; on other
systems there is no figure. On a GPU the framework's allocator is asked.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

from relpos.bench.contender import Contender, Size
from relpos.errors import RelposError

__all__ = ["measure_peak", "peak_here"]


def measure_peak(contender: Contender, direction: str, size: Size) -> tuple[int | None, str]:
    """Most bytes that one call holds, measured in a fresh process; or the reason why not."""
    question = json.dumps(
        {"name": contender.name, "direction": direction, "size": dataclasses.asdict(size)}
    )
    done = subprocess.run(
        [sys.executable, "-m", "relpos.bench.memory", contender.framework, question],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return None, lines[-1] if lines else f"the process ended with {done.returncode}"
    return int(done.stdout.split()[-1]), ""


def peak_here(contender: Contender, direction: str, size: Size) -> int:
    """The same in this process, which should be fresh."""
    # What libraries set up at their first use is not the call's.
    warm = getattr(contender.build(dataclasses.replace(size, L=min(size.L, 256))), direction)
    warm()
    call = getattr(contender.build(size), direction)
    if size.device != "cpu":
        return _on_gpu(contender.framework, call)
    status, marks = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    try:
        marks.write_text("5")
    except OSError as error:
        raise RelposError(
            "a process's own peak of memory must be readable",
            got=str(error),
            expected="Linux, where /proc/self/clear_refs can be written",
        ) from error
    before = _kibibytes(status, "VmRSS")
    call()
    return 1024 * max(0, _kibibytes(status, "VmHWM") - before)


def _kibibytes(status: Path, name: str) -> int:
    (line,) = (line for line in status.read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1])


def _on_gpu(framework: str, call: object) -> int:
    assert callable(call)
    if framework == "torch":
        import torch

        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return torch.cuda.max_memory_allocated() - before
    import jax

    # The allocator's peak cannot begin anew, but nothing before the call was larger.
    statistics = jax.devices("gpu")[0].memory_stats() or {}
    call()
    after = jax.devices("gpu")[0].memory_stats() or {}
    return int(after["peak_bytes_in_use"] - statistics["bytes_in_use"])


def _main() -> None:
    """What the fresh process runs."""
    from relpos.bench.run import KERNELS, everyone

    framework, question = sys.argv[1], json.loads(sys.argv[2])
    named = {each.name: each for each in everyone((framework,), KERNELS)}
    peak = peak_here(named[question["name"]], question["direction"], Size(**question["size"]))
    sys.stdout.write(f"{peak}\n")


if __name__ == "__main__":
    _main()
