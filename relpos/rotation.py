"""Cosines and sines of p * f for whole positions p, correctly rounded to the working precision.

A float32 product of position and frequency is wrong by 5e-3 radians at position 131071, and a
bfloat16 one at position 257. So no position is ever multiplied by a frequency in working
precision: it is split into bytes, p = p0 + 256 p1 + 256**2 p2 + 256**3 p3, the cosines and sines of
each byte's angle are computed here once in float64, and the twins add the four angles:

    cos(a + b) = cos a cos b - sin a sin b          sin(a + b) = sin a cos b + cos a sin b

A frequency is a float64, the one nearest to what its formula says: a unit in its last place is
worth 1e-11 radians at position 131071. Formulas are therefore worked out in decimals.
"""

from __future__ import annotations

import decimal
import functools
from contextlib import AbstractContextManager
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

__all__ = ["BYTES", "PI", "byte_powers", "byte_tables", "decimals", "frequencies", "geometric"]

#: A position has four bytes: enough for every int32.
BYTES = 4
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


def decimals() -> AbstractContextManager[decimal.Context]:
    """Arithmetic with 40 digits, so that only the last rounding to float64 is seen."""
    return decimal.localcontext(decimal.Context(prec=40))


def geometric(base: Decimal, width: int, first: int = 0) -> list[Decimal]:
    """f_m = base ** (-2m / width) for m = first .. first + width/2 - 1, radians per position."""
    return [base ** (Decimal(-2 * m) / width) for m in range(first, first + width // 2)]


def frequencies(base: float, rotary_dim: int, first: int = 0) -> NDArray[np.float64]:
    """The frequencies of a plain rotation of `rotary_dim` channels, in float64."""
    with decimals():
        return np.array([float(f) for f in geometric(Decimal(base), rotary_dim, first)])


@functools.lru_cache(maxsize=64)
def byte_tables(
    frequencies: tuple[float, ...], dtype: str
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Cosines and sines of byte * 256**place * f_m, rounded once to `dtype`.

    Returns:
        Two read-only arrays [place, byte, m] of shape [4, 256, len(frequencies)].
    """
    upper, lower = _byte_products(frequencies)
    cos_upper, sin_upper = np.cos(upper), np.sin(upper)
    cos_lower, sin_lower = np.cos(lower), np.sin(lower)
    cos = (cos_upper * cos_lower - sin_upper * sin_lower).astype(dtype)
    sin = (sin_upper * cos_lower + cos_upper * sin_lower).astype(dtype)
    cos.setflags(write=False)
    sin.setflags(write=False)
    return cos, sin


@functools.lru_cache(maxsize=64)
def byte_powers(rates: tuple[float, ...], dtype: str) -> NDArray[np.floating]:
    """exp(byte * 256**place * rate_m) for rates <= 0, rounded once to `dtype`.

    Returns:
        A read-only array [place, byte, m] of shape [4, 256, len(rates)].
    """
    upper, lower = _byte_products(rates)
    powers = (np.exp(upper) * np.exp(lower)).astype(dtype)
    powers.setflags(write=False)
    return powers


def _byte_products(numbers: tuple[float, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """byte * 256**place * number [place, byte, m] without a rounding, as sums of two parts."""
    number = np.array(numbers)
    # Two parts of at most 27 bits each: every product with a byte (8 bits and a power of two) is
    # exact.
    scaled = number * 134217729.0  # 2**27 + 1, Veltkamp's split
    upper = scaled - (scaled - number)
    place = 256.0 ** np.arange(BYTES)
    position = place[:, None, None] * np.arange(256.0)[None, :, None]
    return position * upper, position * (number - upper)
