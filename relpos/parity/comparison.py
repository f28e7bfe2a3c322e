"""One array against its reference, entry by entry, in multiples of the error each may have.

    ratio[n] = |candidate[n] - value[n]| / budget[n]            0 / 0 = 0, x / 0 = infinity

value and budget come from the oracle (`relpos.oracle`); the comparison passes if no ratio is above
1. So there is no tolerance to choose: an entry whose budget is 0, such as a row that may attend to
nothing, must be met exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpos.oracle.number import Estimate
from relpos.parity.verdict import Verdict

__all__ = ["Comparison", "compare", "compare_exact", "compare_pair"]

Index = tuple[int, ...]
#: From the index of an entry to the distance j - i that it is about, if it is about one.
DistanceOf = Callable[[Index], int | None]


@dataclass(frozen=True)
class Comparison:
    """What came of comparing one array with its reference.

    Attributes:
        what: Which array: `output`, `gradient of q`, ...
        count: Entries that were compared.
        ratio: The worst error as a multiple of its entry's budget, which is also the smallest
            uniform multiple of the budget that would pass.
        index: Where the worst ratio is.
        distance: The distance j - i of that place, where there is one.
        got: The candidate there.
        expected: The reference there.
        budget: The error allowed there.
        atol: The smallest absolute tolerance, alone, that would pass.
        rtol: The smallest relative tolerance, alone, that would pass.
        problem: Why nothing could be compared: a wrong shape or dtype; else None.
    """

    what: str
    count: int = 0
    ratio: float = math.inf
    index: Index | None = None
    distance: int | None = None
    got: float = math.nan
    expected: float = math.nan
    budget: float = math.nan
    atol: float = math.inf
    rtol: float = math.inf
    problem: str | None = None

    @property
    def verdict(self) -> Verdict:
        """PASS if something was compared and every entry is within its budget, else FAIL."""
        passed = self.problem is None and self.count > 0 and self.ratio <= 1.0
        return Verdict.PASS if passed else Verdict.FAIL

    @property
    def is_gradient(self) -> bool:
        """The array is a gradient."""
        return self.what.startswith("gradient")

    def __str__(self) -> str:
        if self.problem is not None:
            return f"{self.what}: {self.problem}"
        if self.count == 0:
            return f"{self.what}: nothing to compare"
        at = "" if self.index is None else f" at {list(self.index)}"
        about = "" if self.distance is None else f" (distance j - i = {self.distance})"
        return (
            f"{self.what}: {self.ratio:.3g} x budget{at}{about}: got {self.got:.9g}, expected "
            f"{self.expected:.9g} +- {self.budget:.2g}; would pass with atol {self.atol:.2g} "
            f"or rtol {self.rtol:.2g}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain JSON types."""
        return {
            "what": self.what,
            "verdict": self.verdict.value,
            "count": self.count,
            "ratio": self.ratio,
            "index": None if self.index is None else list(self.index),
            "distance": self.distance,
            "got": self.got,
            "expected": self.expected,
            "budget": self.budget,
            "atol": self.atol,
            "rtol": self.rtol,
            "problem": self.problem,
        }


def compare(
    reference: Estimate,
    candidate: NDArray[Any],
    *,
    what: str = "output",
    dtype: str | None = None,
    distance_of: DistanceOf | None = None,
) -> Comparison:
    """Compare an array with its reference, entry by entry.

    A NaN or an infinity passes only where the reference has the same one.

    Args:
        reference: The exact values and the error that each may have.
        candidate: The values under test, of any floating dtype (bfloat16 included).
        what: Name of the array in reports.
        dtype: The dtype that the candidate must have, if that matters.
        distance_of: The distance j - i that an index is about.

    Returns:
        The comparison; a wrong shape or dtype is a failed one, not an exception.

    Example:
        >>> reference = Estimate(np.array([1.0, 0.0]), np.array([1e-6, 0.0]))
        >>> compare(reference, np.array([1.0 + 5e-7, 0.0])).verdict.value
        'PASS'
        >>> compare(reference, np.array([1.0, 1e-30])).index
        (1,)
    """
    got = np.asarray(candidate)
    value = np.asarray(reference.value, np.float64)
    budget = np.broadcast_to(np.asarray(reference.budget, np.float64), value.shape)
    if not (np.isfinite(budget) & (budget >= 0.0)).all():
        return Comparison(what, problem="a budget is negative, infinite or NaN")
    if got.dtype.kind in "OSUcMmT":
        return Comparison(what, problem=f"dtype {got.dtype}, expected real numbers")
    if got.shape != value.shape:
        return Comparison(what, problem=f"shape {list(got.shape)}, expected {list(value.shape)}")
    if dtype is not None and got.dtype.name != dtype:
        return Comparison(what, problem=f"dtype {got.dtype.name}, expected {dtype}")
    if value.size == 0:
        return Comparison(what)
    got = got.astype(np.float64)
    with np.errstate(all="ignore"):
        equal = (got == value) | (np.isnan(got) & np.isnan(value))
        error = np.where(equal, 0.0, np.abs(got - value))
        ratio = np.where(equal, 0.0, error / budget)
        relative = np.where(equal, 0.0, error / np.abs(value))
    for array in (error, ratio, relative):
        # What is left of NaN is a NaN on one side only, or a budget that is none.
        array[np.isnan(array)] = math.inf
    # Among equal ratios, such as infinite ones where nothing is allowed, the largest error leads.
    worst = np.argmax(np.where(ratio == ratio.max(), error, -1.0))
    index = tuple(int(n) for n in np.unravel_index(worst, ratio.shape))
    return Comparison(
        what,
        count=value.size,
        ratio=float(ratio[index]),
        index=index,
        distance=None if distance_of is None else distance_of(index),
        got=float(got[index]),
        expected=float(value[index]),
        budget=float(budget[index]),
        atol=float(error.max()),
        rtol=float(relative.max()),
    )


def compare_pair(
    first: NDArray[Any], second: NDArray[Any], reference: Estimate, *, what: str = "output"
) -> Comparison:
    """Compare two sides with one another: each may use its own budget, so their sum is allowed.

    Example:
        >>> reference = Estimate(np.zeros(3), np.full(3, 0.5))
        >>> compare_pair(np.full(3, 0.25), np.zeros(3), reference).ratio
        0.25
    """
    value = np.asarray(second).astype(np.float64)
    if value.shape != reference.value.shape:
        expected = list(reference.value.shape)
        return Comparison(what, problem=f"shape {list(value.shape)}, expected {expected}")
    if not np.array_equal(np.isnan(value), np.isnan(reference.value)):
        return Comparison(what, problem="NaN where the reference has a number, or the reverse")
    return compare(Estimate(value, 2.0 * reference.budget), first, what=what)


def compare_exact(
    expected: NDArray[Any],
    candidate: NDArray[Any],
    *,
    what: str,
    distance_of: DistanceOf | None = None,
) -> Comparison:
    """Compare whole numbers or truth values, bit for bit; floats are refused.

    Example:
        >>> compare_exact(np.array([1, 2]), np.array([1, 3]), what="rows").verdict.value
        'FAIL'
    """
    for name, array in (("expected", expected), ("candidate", candidate)):
        if np.asarray(array).dtype.kind not in "biu":
            dtype = np.asarray(array).dtype.name
            return Comparison(what, problem=f"{name} has dtype {dtype}, expected integers or bool")
    exact, got = np.asarray(expected), np.asarray(candidate)
    if exact.shape != got.shape:
        return compare(Estimate(exact.astype(np.float64), np.zeros(exact.shape)), got, what=what)
    # As differences: beyond 2**53 two whole numbers can be one float64.
    apart = np.where(exact == got, 0.0, np.abs(got.astype(np.float64) - exact) + 1.0)
    found = compare(
        Estimate(np.zeros(exact.shape), np.zeros(exact.shape)),
        apart,
        what=what,
        distance_of=distance_of,
    )
    if found.index is None:
        return found
    at = found.index
    return replace(found, got=float(got[at]), expected=float(exact[at]))
