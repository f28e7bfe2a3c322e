"""score = scale * <R(i) q, R(j) k>: pair number m is turned by position * frequency m."""

from __future__ import annotations

import functools
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from relpos.oracle.number import Number, cosine, sine
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import (
    Axial,
    DynamicNTK,
    LinearScaling,
    Llama3Scaling,
    LongRoPE,
    NTKScaling,
    RoPE,
    Sections,
    YaRN,
)

__all__ = ["RoPEOracle", "attention_factor", "frequency", "partners"]

_TURN = 2 * Decimal("3.14159265358979323846264338327950288419716939937511")


class RoPEOracle(SchemeOracle[RoPE]):
    """Rotation of channel pairs."""

    #: The largest position of the batch row, plus one.
    length = 0

    def begin(
        self, query_positions: NDArray[np.integer], key_positions: NDArray[np.integer]
    ) -> None:
        """The frequencies may depend on the length of the row."""
        self.length = 1 + max(int(p) for at in (query_positions, key_positions) for p in at.flat)

    def _rotate(self, token: Token) -> Number:
        if token.vector not in self.turned:
            self.turned[token.vector] = self._rotated(token)
        return self.turned[token.vector]

    def _rotated(self, token: Token) -> Number:
        x, d = token.vector, len(token.vector.value)
        partner, sign, pair = partners(d, self.scheme.rotated(d), self.scheme.layout)
        f = [0.0 if m is None else frequency(self.scheme, d, m, self.length) for m in pair]
        axis = [0 if m is None else _axis(self.scheme, m) for m in pair]
        at = token.axes or (token.position,) * self.scheme.position_axes
        angle = [at[a] * Fraction(each) for a, each in zip(axis, f, strict=True)]
        turned = x.take(np.array(partner)) * self.tape.constant(np.array(sign))
        rotated = x * cosine(self.tape, angle) + turned * sine(self.tape, angle)
        factor = attention_factor(self.scheme)
        if factor == 1.0:
            return rotated
        each_factor = np.array([1.0 if m is None else factor for m in pair])
        return rotated * self.tape.constant(each_factor, rounded=True)

    def content(self, h: int, query: Token, key: Token, scale: float) -> Number:
        """scale * <R(i) q, R(j) k>."""
        return self._rotate(query).dot(self._rotate(key)) * self.tape.constant(scale)


def partners(d: int, r: int, layout: str) -> tuple[list[int], list[float], list[int | None]]:
    """For every channel: its partner, the sign of the partner's share, the number of the pair."""
    partner, sign = list(range(d)), [0.0] * d
    pair: list[int | None] = [None] * d
    for m in range(r // 2):
        first, second = (m, m + r // 2) if layout == "half" else (2 * m, 2 * m + 1)
        partner[first], partner[second] = second, first
        sign[first], sign[second] = -1.0, 1.0
        pair[first] = pair[second] = m
    return partner, sign, pair


@functools.cache
def frequency(scheme: RoPE, d: int, m: int, length: int) -> float:
    """The frequency of pair m in a call of this length, the nearest float64."""
    with localcontext(Context(prec=45)):
        r = Decimal(d if scheme.rotary_dim is None else scheme.rotary_dim)
        if scheme.partial == "proportional":
            if m >= r / 2:
                return 0.0
            r = Decimal(d)
        if isinstance(scheme.axes, Axial):
            # Frequencies begin anew with each axis.
            axis = _axis(scheme, m)
            m -= sum(scheme.axes.sizes[:axis])
            r = Decimal(2 * scheme.axes.sizes[axis])
        base = Decimal(scheme.base)
        plain = 1 / base ** (2 * m / r)
        scaling = scheme.scaling
        if isinstance(scaling, LinearScaling):
            return float(plain / Decimal(scaling.factor))
        if isinstance(scaling, NTKScaling | DynamicNTK):
            stretch = Decimal(scaling.factor)
            if isinstance(scaling, DynamicNTK):
                known = Decimal(scaling.length or length)
                if known <= scaling.original_length:
                    return float(plain)
                stretch = stretch * known / scaling.original_length - stretch + 1
            return float(1 / (base * stretch ** (r / (r - 2))) ** (2 * m / r))
        if isinstance(scaling, YaRN):
            kept = 1 - _ramp(scaling, r, base, m)
            return float((1 - kept) * plain / Decimal(scaling.factor) + kept * plain)
        if isinstance(scaling, LongRoPE):
            is_short = length <= scaling.original_length
            divisors = scaling.short_factors if is_short else scaling.long_factors
            return float(plain / Decimal(divisors[m]))
        if isinstance(scaling, Llama3Scaling):
            wavelength = _TURN / plain
            low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
            if wavelength < scaling.original_length / Decimal(high):
                return float(plain)
            if wavelength > scaling.original_length / Decimal(low):
                return float(plain / Decimal(scaling.factor))
            smooth = scaling.original_length / wavelength - Decimal(low)
            smooth /= Decimal(high) - Decimal(low)
            return float((1 - smooth) * plain / Decimal(scaling.factor) + smooth * plain)
        return float(plain)


def _axis(scheme: RoPE, m: int) -> int:
    """The axis of positions that pair m follows."""
    if scheme.axes is None:
        return 0
    left = list(scheme.axes.sizes)
    if isinstance(scheme.axes, Sections) and scheme.axes.order == "interleaved":
        axis = -1
        for _ in range(m + 1):
            axis = (axis + 1) % len(left)
            while left[axis] == 0:
                axis = (axis + 1) % len(left)
            left[axis] -= 1
        return axis
    axis = 0
    while m >= left[axis]:
        m -= left[axis]
        axis += 1
    return axis


def _ramp(scaling: YaRN, r: Decimal, base: Decimal, m: int) -> Decimal:
    """0 for pairs that turn often in the original length, 1 for those that turn seldom."""

    def pair_that_turns(times: float) -> Decimal:
        return r * (scaling.original_length / (Decimal(times) * _TURN)).ln() / (2 * base.ln())

    begin, end = pair_that_turns(scaling.beta_fast), pair_that_turns(scaling.beta_slow)
    if scaling.truncate:
        begin, end = begin.__floor__() + Decimal(0), end.__ceil__() + Decimal(0)
    begin, end = max(begin, Decimal(0)), min(end, r - 1)
    if m <= begin:
        return Decimal(0)
    return Decimal(1) if m >= end else (m - begin) / (end - begin)


def attention_factor(scheme: RoPE) -> float:
    """What cosines and sines are multiplied by."""
    scaling = scheme.scaling
    if not isinstance(scaling, YaRN | LongRoPE):
        return 1.0
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    with localcontext(Context(prec=45)):
        assert scaling.factor is not None
        growth = Decimal(scaling.factor).ln()
        if isinstance(scaling, LongRoPE):
            return float((1 + growth / Decimal(scaling.original_length).ln()).sqrt())
        if scaling.mscale is None or scaling.mscale_all_dim is None:
            return float(1 + growth / 10)
        numerator = 1 + Decimal(scaling.mscale) * growth / 10
        return float(numerator / (1 + Decimal(scaling.mscale_all_dim) * growth / 10))
