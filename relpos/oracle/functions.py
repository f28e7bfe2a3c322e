"""Functions of numbers, entry by entry, each with the error that it may make.

A function f of x with slope f' and curvature f'' has the value f(x), whose error is f'(x) times
that of x and one rounding of f(x); and the slope f'(x), whose error is f''(x) times that of x and
one rounding of f'(x).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from relpos.oracle.number import Array, Number, Pair

__all__ = [
    "arctangent",
    "cosine_of",
    "difference_of_sums",
    "exponential",
    "gelu",
    "logarithm",
    "power",
    "rectified",
    "sigmoid",
    "silu",
    "sine_of",
    "softplus",
    "square_root",
    "standardised",
    "tanh",
]

Function = Callable[[Array], Array]


def _elementwise(
    x: Number, value: Array, slope: Array, curvature: Array, lost: Array | float = 0.0
) -> Number:
    """A function of x; `lost` is what cancels where the slope is made of the rounded value."""
    tape, (_, variance) = x.tape, x.pair
    pair = value, slope**2 * variance + tape._rounding * value**2
    slopes = slope, curvature**2 * variance + tape._rounding * (slope**2 + lost**2)

    def pull(adjoint: Pair) -> list[Pair]:
        return [tape._product(adjoint, slopes)]

    return tape.number(pair, (x,), pull)


def logarithm(x: Number) -> Number:
    """log x, the natural logarithm; x > 0."""
    v = x.value
    return _elementwise(x, np.log(v), 1 / v, -1 / v**2)


def exponential(x: Number) -> Number:
    """exp x."""
    e = np.exp(x.value)
    return _elementwise(x, e, e, e)


def square_root(x: Number) -> Number:
    """The square root of x > 0."""
    root = np.sqrt(x.value)
    return _elementwise(x, root, 0.5 / root, -0.25 / root**3)


def standardised(x: Number, eps: float) -> Number:
    """(x - mean) / sqrt(variance + eps) over the entries of a vector, as in a layer norm."""
    tape, n = x.tape, len(x.value)
    share, ones = tape.constant(np.full(n, 1.0 / n)), tape.constant(np.ones(n))
    centred = x - x.dot(share) * ones
    variance = (centred * centred).dot(share)
    return square_root(variance + tape.constant(eps)).reciprocal() * centred


def power(base: float, x: Number) -> Number:
    """base ** x for a base > 0."""
    value, log = base**x.value, math.log(base)
    return _elementwise(x, value, log * value, log**2 * value)


def sigmoid(x: Number) -> Number:
    """1 / (1 + exp -x); its slope is taken as s (1 - s), which loses what s has lost near 1."""
    s = _sigmoid(x.value)
    slope = s * _sigmoid(-x.value)
    return _elementwise(x, s, slope, slope * (1 - 2 * s), lost=s * s)


def softplus(x: Number) -> Number:
    """log(1 + exp x)."""
    s = _sigmoid(x.value)
    return _elementwise(x, np.logaddexp(x.value, 0.0), s, s * _sigmoid(-x.value))


def tanh(x: Number) -> Number:
    """The hyperbolic tangent t; its slope is taken as 1 - t**2, which loses what t has lost."""
    t = np.tanh(x.value)
    slope = 1 / np.cosh(x.value) ** 2
    return _elementwise(x, t, slope, -2 * t * slope, lost=t * t)


def arctangent(x: Number) -> Number:
    """The angle whose tangent is x, in radians."""
    slope = 1 / (1 + x.value**2)
    return _elementwise(x, np.arctan(x.value), slope, -2 * x.value * slope**2)


def rectified(x: Number) -> Number:
    """max(x, 0); its slope at 0 is 0."""
    slope = (x.value > 0).astype(np.float64)
    return _elementwise(x, np.maximum(x.value, 0.0), slope, 0 * slope)


def silu(x: Number) -> Number:
    """x / (1 + exp -x)."""
    return x * sigmoid(x)


def gelu(x: Number) -> Number:
    """x times the probability that a standard normal number is below x (the exact form)."""
    density = np.exp(-(x.value**2) / 2) / math.sqrt(2 * math.pi)
    below = np.vectorize(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)))(x.value)
    return x * _elementwise(x, below, density, -x.value * density)


def sine_of(x: Number) -> Number:
    """The sine of x, in radians."""
    return _elementwise(x, np.sin(x.value), np.cos(x.value), -np.sin(x.value))


def cosine_of(x: Number) -> Number:
    """The cosine of x, in radians."""
    return _elementwise(x, np.cos(x.value), -np.sin(x.value), -np.cos(x.value))


def difference_of_sums(between: Sequence[Number], shared: Sequence[Number]) -> Number:
    """sum(shared, between) - sum(shared), of which one at least has entries.

    A running sum gives all such differences at once. Compensated it gives them as if what is shared
    had never been added, so that the value has the error of what is between alone. The way back has
    no such remedy: what is shared gets its gradient once with either sign, within two sums, and
    where that cancels the rounding of both stays.
    """
    tape, count = (*between, *shared)[0].tape, len(between) + len(shared)
    zero = np.zeros(())
    pair = tape._sum([number.pair for number in between]) if between else (zero, zero)

    def pull(adjoint: Pair) -> list[Pair]:
        left = 2 * tape._rounding * count * adjoint[0] ** 2
        return [adjoint] * len(between) + [(0.0 * left, left)] * len(shared)

    return tape.number(pair, (*between, *shared), pull)


def _sigmoid(v: Array) -> Array:
    return np.exp(-np.logaddexp(0.0, -v))
