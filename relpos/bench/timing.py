"""Times taken in turn: one of each contender per round, so that all meet the same machine."""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from relpos.bench.contender import Calls, Contender, Size, describe
from relpos.bench.result import RATE, Measurement, Result

__all__ = ["DIRECTIONS", "SHORTEST", "measure_times"]

DIRECTIONS = ("forward", "both")

#: A shorter call is repeated until it takes as long, so that the clock does not count.
SHORTEST = 0.01


def measure_times(
    result: Result,
    contenders: Sequence[Contender],
    size: Size,
    rounds: int,
    tell: Callable[[str], None],
) -> None:
    """Time everyone at one size, and write it into the result.

    Args:
        result: Where measurements go.
        contenders: Who takes part.
        size: The size.
        rounds: How often each is timed.
        tell: Told what is about to be done: once per contender, once per round.
    """
    runs: list[tuple[Measurement, Callable[[], None], int]] = []
    # The machine's rate too, since a shared machine has another one in every round.
    for framework in sorted({each.framework for each in contenders}):
        module: Any = importlib.import_module(f"relpos.bench.{framework}_contenders")
        product, operations = module.matrix_product(size)
        rate = Measurement("", framework, RATE, RATE, False, "forward", size.L, operations)
        result.measurements.append(rate)
        runs.append((rate, product, _repeats(product)))
    for contender in contenders:
        tell(f"L={size.L}: {contender.name}")
        if contender.longest < size.L:
            continue
        calls, problem = _built(contender, size)
        for direction, products in zip(DIRECTIONS, contender.products, strict=True):
            call = None if calls is None else getattr(calls, direction)
            measurement = Measurement(
                contender.name,
                contender.framework,
                contender.form,
                contender.work,
                contender.ours,
                direction,
                size.L,
                products * size.product,
            )
            result.measurements.append(measurement)
            try:
                if call is None:
                    measurement.problem = problem or "there is no backward"
                else:
                    runs.append((measurement, call, _repeats(call)))
            except Exception as error:  # of any library: it is reported, and others go on
                measurement.problem = describe(error)
    for number in range(rounds):
        tell(f"L={size.L}: round {number + 1} of {rounds}")
        gc.collect()
        # Each round begins with another one, so that nobody always follows the same neighbour.
        start = number * len(runs) // rounds
        times: list[tuple[Measurement, float]] = []
        for run in runs[start:] + runs[:start]:
            measurement, call, repeats = run
            try:
                times.append((measurement, _time(call, repeats)))
            except Exception as error:  # of any library: it is reported, and others go on
                measurement.problem = describe(error)
                measurement.seconds.clear()
                runs.remove(run)
        # Whole rounds alone, so that a run that is stopped keeps ratios of the same rounds.
        for measurement, seconds in times:
            measurement.seconds.append(seconds)


def _built(contender: Contender, size: Size) -> tuple[Calls | None, str]:
    try:
        return contender.build(size), ""
    except Exception as error:  # of any library: it is reported, and others go on
        return None, describe(error)


def _repeats(call: Callable[[], None]) -> int:
    call()  # compiles, and fills what is kept
    return max(1, round(SHORTEST / max(_time(call, 1), 1e-6)))


def _time(call: Callable[[], None], repeats: int) -> float:
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - started) / repeats
