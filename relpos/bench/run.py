"""A run: contenders, lengths and rounds become a result."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from relpos.bench.contender import Contender, Size
from relpos.bench.memory import measure_peak
from relpos.bench.result import Result
from relpos.bench.timing import DIRECTIONS, measure_times
from relpos.bench.works import WORKS
from relpos.errors import SettingError

__all__ = ["FRAMEWORKS", "KERNELS", "Request", "everyone", "run"]

FRAMEWORKS = ("torch", "jax")
#: Kernels of ours, in both frameworks.
KERNELS = ("dense", "blockwise")

#: Told after each step: how many are done, of how many, and what is done next.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Request:
    """What is to be measured.

    Attributes:
        lengths: Lengths L, ascending.
        size: All sizes but the length.
        works: Of the names in `WORKS`; empty is all.
        kernels: Kernels of ours beside what `auto` chooses.
        only: `torch` or `jax`; None is both.
        rounds: How often each is timed at each length.
        peaks: At how many of the longest lengths peaks of memory are measured too, forwards and
            backwards, for each as far as it goes; in a quick run of torch's vectors alone.
        quick: Leave out what takes long to compile or to run.
    """

    lengths: tuple[int, ...] = (256, 1024, 2048, 4096, 8192)
    size: Size = field(default_factory=Size)
    works: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    only: str | None = None
    rounds: int = 7
    peaks: int = 2
    quick: bool = False

    def __post_init__(self) -> None:
        known = {work.name.lower(): work.name for work in WORKS}
        for name in self.works:
            if name.lower() not in known:
                raise SettingError(
                    "what is compared must be known by name", got=repr(name), expected=[*known]
                )
        object.__setattr__(self, "works", tuple(known[name.lower()] for name in self.works))
        if self.only is not None and self.only not in FRAMEWORKS:
            raise SettingError(
                "a framework must be known by name", got=repr(self.only), expected=FRAMEWORKS
            )
        for name in self.kernels:
            if name not in KERNELS:
                raise SettingError(
                    "a kernel of ours must be known by name", got=repr(name), expected=KERNELS
                )
        if not self.lengths or min(self.lengths) < 1:
            raise SettingError(
                "lengths count tokens", got=self.lengths, expected="one or more, each >= 1"
            )
        for name, value in (("rounds", self.rounds), ("peaks", self.peaks + 1)):
            if value < 1:
                raise SettingError(f"{name} are counted", got=value, expected=">= 1")

    def contenders(self) -> list[Contender]:
        """Who takes part; plain attention always does."""
        frameworks = FRAMEWORKS if self.only is None else (self.only,)
        return [
            each
            for each in everyone(frameworks, self.kernels)
            if (not self.quick or each.quick)
            and (not self.works or each.work in self.works or _is_plain(each))
        ]


def everyone(frameworks: Sequence[str], kernels: Sequence[str]) -> list[Contender]:
    """Every contender of these frameworks."""
    found: list[Contender] = []
    if "torch" in frameworks:
        from relpos.bench import torch_contenders

        found += torch_contenders.contenders(kernels)
    if "jax" in frameworks:
        from relpos.bench import jax_contenders

        found += jax_contenders.contenders(kernels)
    return found


def run(request: Request, progress: Progress | None = None) -> Result:
    """Measure all that is asked for; an interrupt (Ctrl-C) ends it with what was measured."""
    started = time.perf_counter()
    result = Result(environment=_environment(request))
    contenders = []
    for each in request.contenders():
        if each.missing:
            result.missing[each.name] = f"not installed: {', '.join(each.missing)}"
        else:
            contenders.append(each)
    lengths = sorted(request.lengths)
    peaks = [
        (each, L)
        for each in contenders
        if not request.quick or (each.framework, each.work) == ("torch", "Shaw, every distance")
        for L in [L for L in lengths if each.longest >= L][-request.peaks :]
        if request.peaks
    ]
    total = len(lengths) * (len(contenders) + request.rounds) + len(peaks)
    done = 0

    def tell(name: str) -> None:
        nonlocal done
        if progress is not None:
            progress(done, total, name)
        done += 1

    try:
        for L in lengths:
            measure_times(result, contenders, replace(request.size, L=L), request.rounds, tell)
        for each, L in peaks:
            tell(f"L={L}: memory of {each.name}")
            _peak(result, each, replace(request.size, L=L))
    except KeyboardInterrupt:  # what took so long to measure is not thrown away
        result.stopped = True
    result.seconds = time.perf_counter() - started
    return result


def _peak(result: Result, contender: Contender, size: Size) -> None:
    # Forwards alone where there is no backward.
    measured = [
        result.find(contender.name, direction, size.L) for direction in reversed(DIRECTIONS)
    ]
    deepest = next((one for one in measured if one is not None and one.seconds), None)
    if deepest is not None:
        deepest.peak, deepest.problem = measure_peak(contender, deepest.direction, size)


def _is_plain(contender: Contender) -> bool:
    return not contender.ours and contender.work == "no positions"


def _environment(request: Request) -> dict[str, Any]:
    packages = ("relpos", "torch", "jax", "jaxlib", "flax", "numpy", "transformers")
    sizes = {name: value for name, value in asdict(request.size).items() if name != "L"}
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "python": platform.python_version(),
        "packages": {
            name: importlib.metadata.version(name)
            for name in packages
            if importlib.util.find_spec(name) is not None
        },
        "size": sizes,
        "lengths": list(request.lengths),
        "rounds": request.rounds,
    }


def _processor() -> str:
    """The processor by the name that it gives itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
