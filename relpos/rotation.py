"""Cosines and sines of p * f for whole positions p, correctly rounded to the working precision.

A float32 product of position and frequency is wrong by 5e-3 radians at position 131071, and a
bfloat16 one at position 257. So no position is ever multiplied by a frequency in working
precision: it is split into digits, p = p0 + 1024 p1 + 1024**2 p2, the cosines and sines of each
digit's angle are computed here once in float64, and the twins add the three angles:

    cos(a + b) = cos a cos b - sin a sin b          sin(a + b) = sin a cos b + cos a sin b
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

__all__ = ["DIGITS", "DIGIT_BASE", "MAX_POSITION", "digit_tables", "frequencies"]

DIGIT_BASE = 1024
DIGITS = 3
#: Positions lie strictly between -MAX_POSITION and MAX_POSITION.
MAX_POSITION = DIGIT_BASE**DIGITS


def frequencies(base: float, rotary_dim: int) -> NDArray[np.float64]:
    """f_m = base ** (-2m / rotary_dim) for m = 0 .. rotary_dim/2 - 1, radians per position."""
    return np.array([base ** (-2 * m / rotary_dim) for m in range(rotary_dim // 2)])


@functools.cache
def digit_tables(
    base: float, rotary_dim: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cosines and sines of digit * 1024**place * f_m.

    Returns:
        Two read-only float64 arrays [place, digit, m] of shape [3, 1024, rotary_dim / 2].
    """
    frequency = frequencies(base, rotary_dim)
    # The frequency in two parts of at most 27 bits each: every product with a digit (10 bits and a
    # power of two) is exact, so the angles reach cos and sin without a rounding.
    scaled = frequency * 134217729.0  # 2**27 + 1, Veltkamp's split
    upper = scaled - (scaled - frequency)
    lower = frequency - upper
    place = float(DIGIT_BASE) ** np.arange(DIGITS)
    position = place[:, None, None] * np.arange(DIGIT_BASE, dtype=np.float64)[None, :, None]
    cos_upper, sin_upper = np.cos(position * upper), np.sin(position * upper)
    cos_lower, sin_lower = np.cos(position * lower), np.sin(position * lower)
    cos = cos_upper * cos_lower - sin_upper * sin_lower
    sin = sin_upper * cos_lower + cos_upper * sin_lower
    cos.setflags(write=False)
    sin.setflags(write=False)
    return cos, sin
