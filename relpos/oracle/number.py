"""Float64 numbers that carry the error their working precision may make, and their gradients.

The oracle is written as loops over these numbers. Each holds its exact value (float64), and beside
it the variance of the error that a computation in the working precision is allowed:

* every operation of length K adds (4 u)**2 * K * sum(a**2 b**2), with u the unit roundoff, to
* what its operands' errors become through it, to first order and as independent errors.

A value stored in half precision adds (2 u_half |x|)**2. Reverse accumulation over the same record
of operations gives the gradients, and the same arithmetic the gradients' allowed errors. With
one formula per scheme, written forwards, there is a value, a gradient and a budget for both.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Array",
    "Estimate",
    "Leaf",
    "Number",
    "Precision",
    "Tape",
    "cosine",
    "sine",
    "sinusoid",
    "softmax_mean",
]

Array = NDArray[np.float64]
#: A value and the variance of its error.
Pair = tuple[Array, Array]

_ACCUMULATION = 4.0
_STORAGE = 2.0
#: Errors are carried as if they were independent, and to first order. That of one query reaches
#: every one of its scores, so they are not quite: on layers with real weights an honest float32
#: result comes to 0.97 of what independence allows.
_DEPENDENCE = 2.0


@dataclass(frozen=True)
class Precision:
    """The working precision of a computation.

    Attributes:
        unit: Unit roundoff of products, sums and functions (2**-24 for float32).
        storage: Unit roundoff of stored results where it is coarser, else 0 (2**-8 for bfloat16).
    """

    unit: float
    storage: float = 0.0

    @staticmethod
    def of(dtype: str) -> Precision:
        """The precision that relpos computes with for inputs of this dtype.

        Half-precision inputs are computed in float32 and stored in half precision.
        """
        known = {
            "float64": Precision(2.0**-53),
            "float32": Precision(2.0**-24),
            "float16": Precision(2.0**-24, 2.0**-11),
            "bfloat16": Precision(2.0**-24, 2.0**-8),
        }
        return known[dtype]


@dataclass(frozen=True, eq=False)
class Estimate:
    """An exact array and the error that each of its entries may have."""

    value: Array
    budget: Array


class Tape:
    """Records operations, so that gradients can be accumulated in reverse."""

    def __init__(self, precision: Precision) -> None:
        self.precision = precision
        self._rounding = (_ACCUMULATION * precision.unit) ** 2
        self._stored = (_STORAGE * precision.storage) ** 2
        self._numbers: list[Number] = []

    # Arithmetic on pairs: forwards and backwards use the same rules.

    def _product(self, a: Pair, b: Pair) -> Pair:
        value = a[0] * b[0]
        return value, a[0] ** 2 * b[1] + b[0] ** 2 * a[1] + self._rounding * value**2

    def _dot(self, a: Pair, b: Pair) -> Pair:
        """Sum of products over the first axis of a and of b (matrix-vector if b has two axes)."""
        squares = a[0] ** 2
        noise = self._rounding * len(a[0])
        variance = squares @ (b[1] + noise * b[0] ** 2) + a[1] @ b[0] ** 2
        return a[0] @ b[0], variance

    def _sum(self, terms: Sequence[Pair]) -> Pair:
        if len(terms) == 1:
            return terms[0]
        values = np.array([value for value, _ in terms])
        variance = np.array([variance for _, variance in terms]).sum(0)
        return values.sum(0), variance + self._rounding * len(terms) * (values**2).sum(0)

    def _store(self, a: Pair) -> Pair:
        return a[0], a[1] + self._stored * a[0] ** 2

    def _budget(self, variance: Array) -> Array:
        # The exact value is itself a float64 computation with errors of its own: for float64 that
        # doubles the budget, for float32 it is nothing.
        return _DEPENDENCE * np.sqrt(variance) * (1.0 + 2.0**-53 / self.precision.unit)

    # Numbers.

    def number(
        self, pair: Pair, parents: tuple[Number, ...] = (), pull: Pull | None = None
    ) -> Number:
        """A new number; `pull` maps its adjoint to one adjoint per parent."""
        number = Number(self, pair, parents, pull)
        self._numbers.append(number)
        return number

    def constant(self, value: float | Array, *, rounded: bool = False) -> Number:
        """A number without a gradient, exact unless it was `rounded` when it was computed."""
        array = np.asarray(value, np.float64)
        return self.number((array, self._rounding * array**2 if rounded else 0.0 * array))

    def total(self, numbers: Sequence[Number]) -> Number:
        """The sum of several numbers."""
        pair = self._sum([number.pair for number in numbers])
        return self.number(pair, tuple(numbers), lambda adjoint: [adjoint] * len(numbers))

    def backward(self, seeds: Sequence[tuple[Number, Array]]) -> None:
        """Accumulate the gradients of sum(seed * number) into every number."""
        for number, seed in seeds:
            number.contributions.append((seed, 0.0 * seed))
        for number in reversed(self._numbers):
            if number.pull is None or not number.contributions:
                continue
            adjoint = self._sum(number.contributions)
            for parent, pulled in zip(number.parents, number.pull(adjoint), strict=True):
                parent.contributions.append(pulled)


#: From a number's adjoint to its parents' adjoints.
Pull = Callable[[Pair], Sequence[Pair]]


class Number:
    """A scalar or a vector on a tape."""

    __slots__ = ("contributions", "pair", "parents", "pull", "tape")

    def __init__(
        self, tape: Tape, pair: Pair, parents: tuple[Number, ...], pull: Pull | None
    ) -> None:
        self.tape, self.pair, self.parents, self.pull = tape, pair, parents, pull
        self.contributions: list[Pair] = []

    @property
    def value(self) -> Array:
        """The exact value."""
        return self.pair[0]

    def __add__(self, other: Number) -> Number:
        return self.tape.total([self, other])

    def __sub__(self, other: Number) -> Number:
        return self + (-other)

    def __neg__(self) -> Number:
        value, variance = self.pair
        return self.tape.number((-value, variance), (self,), lambda a: [(-a[0], a[1])])

    def __mul__(self, other: Number) -> Number:
        """The product of a scalar and a scalar or vector, or of two vectors entry by entry."""
        tape = self.tape

        def pull(adjoint: Pair) -> list[Pair]:
            to_self = tape._product(adjoint, other.pair)
            if self.value.ndim < other.value.ndim:
                to_self = tape._dot(adjoint, other.pair)
            return [to_self, tape._product(adjoint, self.pair)]

        return tape.number(tape._product(self.pair, other.pair), (self, other), pull)

    def dot(self, other: Number) -> Number:
        """<self, other> of two vectors."""
        tape = self.tape

        def pull(adjoint: Pair) -> list[Pair]:
            return [tape._product(adjoint, other.pair), tape._product(adjoint, self.pair)]

        return tape.number(tape._dot(self.pair, other.pair), (self, other), pull)

    def through(self, matrix: Number) -> Number:
        """The vector self[n] @ matrix[n, m]."""
        tape = self.tape

        def pull(adjoint: Pair) -> list[Pair]:
            transposed = matrix.pair[0].T, matrix.pair[1].T
            outer = tape._product(
                (self.pair[0][:, None], self.pair[1][:, None]),
                (adjoint[0][None, :], adjoint[1][None, :]),
            )
            return [tape._dot(adjoint, transposed), outer]

        return tape.number(tape._dot(self.pair, matrix.pair), (self, matrix), pull)

    def exp(self) -> Number:
        """e to the power of a scalar."""
        tape = self.tape
        value = np.exp(self.value)
        pair = value, value**2 * (self.pair[1] + tape._rounding)
        return tape.number(pair, (self,), lambda adjoint: [tape._product(adjoint, pair)])

    def reciprocal(self) -> Number:
        """1 / self of a scalar."""
        tape = self.tape
        value = 1.0 / self.value
        pair = value, value**4 * self.pair[1] + tape._rounding * value**2

        def pull(adjoint: Pair) -> list[Pair]:
            slope = tape._product(pair, pair)
            return [tape._product(adjoint, (-slope[0], slope[1]))]

        return tape.number(pair, (self,), pull)

    def take(self, index: NDArray[np.integer]) -> Number:
        """The entries of a vector at distinct indices, in that order."""
        value, variance = self.pair

        def pull(adjoint: Pair) -> list[Pair]:
            back = np.zeros_like(value), np.zeros_like(value)
            back[0][index], back[1][index] = adjoint
            return [back]

        return self.tape.number((value[index], variance[index]), (self,), pull)

    def store(self) -> Number:
        """Self, rounded to the storage precision, and its gradient likewise on the way back."""
        tape = self.tape
        return tape.number(tape._store(self.pair), (self,), lambda adjoint: [tape._store(adjoint)])

    def estimate(self, *, stored: bool = True) -> Estimate:
        """The value and its allowed error."""
        value, variance = self.tape._store(self.pair) if stored else self.pair
        return Estimate(value, self.tape._budget(variance))


class Leaf:
    """An array whose entries along its leading axes are numbers on a tape.

    Args:
        tape: The tape.
        array: The exact entries.
        rank: Axes of each number: 1 for an array of vectors, 2 for one of matrices, 0 for scalars.
    """

    def __init__(self, tape: Tape, array: Array, rank: int = 1) -> None:
        self._tape, self._array, self._rank = tape, np.asarray(array, np.float64), rank
        self._numbers: dict[tuple[int, ...], Number] = {}

    def __getitem__(self, index: tuple[int, ...]) -> Number:
        """The number at `index`, always the same object; no index wraps or clamps."""
        outer = self._array.shape[: self._array.ndim - self._rank]
        if len(index) != len(outer) or not all(
            0 <= i < n for i, n in zip(index, outer, strict=True)
        ):
            raise IndexError(f"index {index} outside {outer}")
        if index not in self._numbers:
            self._numbers[index] = self._tape.constant(self._array[index])
        return self._numbers[index]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return self._array.shape

    @property
    def read(self) -> list[tuple[int, ...]]:
        """Every index that was read, sorted."""
        return sorted(self._numbers)

    def gradient(self) -> Estimate:
        """The gradient after `Tape.backward`, zero (exactly) where nothing was read."""
        value, variance = np.zeros(self.shape), np.zeros(self.shape)
        for index, number in self._numbers.items():
            if number.contributions:
                pair = self._tape._store(self._tape._sum(number.contributions))
                value[index], variance[index] = pair
        return Estimate(value, self._tape._budget(variance))


def softmax_mean(tape: Tape, scores: Sequence[Number], values: Sequence[Number]) -> Number:
    """sum_j exp(s_j) v_j / sum_k exp(s_k), shifted by the largest score so that nothing overflows.

    Divided once, at the end: the error of the normaliser is one and the same for every j.
    """
    shift = tape.constant(-max(float(score.value) for score in scores))
    exponentials = [(score + shift).exp() for score in scores]
    weighted = [e * value for e, value in zip(exponentials, values, strict=True)]
    return tape.total(exponentials).reciprocal() * tape.total(weighted)


def cosine(tape: Tape, angles: Sequence[Fraction]) -> Number:
    """Cosines of exact angles, rounded to the working precision."""
    return _unit_circle(tape, [_cos_sin(angle)[0] for angle in angles])


def sine(tape: Tape, angles: Sequence[Fraction]) -> Number:
    """Sines of exact angles, rounded to the working precision."""
    return _unit_circle(tape, [_cos_sin(angle)[1] for angle in angles])


def sinusoid(tape: Tape, angles: Sequence[Fraction], is_sine: Sequence[bool]) -> Number:
    """Sines of some exact angles and cosines of the others, rounded to the working precision."""
    pairs = [_cos_sin(angle) for angle in angles]
    return _unit_circle(tape, [pair[sine] for pair, sine in zip(pairs, is_sine, strict=True)])


@functools.cache
def _cos_sin(angle: Fraction) -> tuple[float, float]:
    # Rounded to float64, an angle of 131071 radians is wrong by 7e-12, ten thousand times what a
    # float64 computation is allowed: the part that is lost comes back to first order.
    nearest = float(angle)
    lost = float(angle - Fraction(nearest))
    cos, sin = math.cos(nearest), math.sin(nearest)
    return cos - lost * sin, sin + lost * cos


def _unit_circle(tape: Tape, values: Sequence[float]) -> Number:
    # Addition formulas make an error relative to 1, however small the cosine or sine is.
    array = np.array(values)
    return tape.number((array, np.full_like(array, tape._rounding)))
