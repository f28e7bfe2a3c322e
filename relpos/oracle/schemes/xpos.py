"""score = scale * sum_m z_m ** ((i - j) / scale_base) * <R(i) q, R(j) k>_m."""

from __future__ import annotations

import functools
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np

from relpos.oracle.number import Number, cosine, sine
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.oracle.schemes.rope import partners
from relpos.schemes import XPos

__all__ = ["XPosOracle", "kept"]


class XPosOracle(SchemeOracle[XPos]):
    """Rotation and decay of channel pairs."""

    def _rotate(self, token: Token) -> Number:
        if token.vector not in self.turned:
            self.turned[token.vector] = self._rotated(token.vector, token.position)
        return self.turned[token.vector]

    def _rotated(self, x: Number, position: int) -> Number:
        scheme, d = self.scheme, len(x.value)
        r = scheme.rotated(d)
        partner, sign, pair = partners(d, r, scheme.layout)
        angle = [Fraction(0 if m is None else position * _frequency(scheme, m, r)) for m in pair]
        turned = x.take(np.array(partner)) * self.tape.constant(np.array(sign))
        return x * cosine(self.tape, angle) + turned * sine(self.tape, angle)

    def content(self, h: int, query: Token, key: Token, scale: float) -> Number:
        """scale * sum_m z_m ** ((i - j) / scale_base) * <R(i) q, R(j) k>_m."""
        d, steps = len(query.vector.value), query.position - key.position
        r = self.scheme.rotated(d)
        pair = partners(d, r, self.scheme.layout)[2]
        left = np.array([1.0 if m is None else kept(self.scheme, m, r, steps) for m in pair])
        q = self._rotate(query) * self.tape.constant(left, rounded=True)
        return q.dot(self._rotate(key)) * self.tape.constant(scale)


@functools.cache
def _frequency(scheme: XPos, m: int, r: int) -> Fraction:
    with localcontext(Context(prec=45)):
        return Fraction(float(Decimal(scheme.base) ** (-2 * m / Decimal(r))))


@functools.cache
def kept(scheme: XPos, m: int, r: int, steps: int) -> float:
    """What pair m keeps of its share over a distance; the decay per step is a float64."""
    with localcontext(Context(prec=45)):
        gamma = Decimal(scheme.gamma)
        z = (Decimal(2 * m) / r + gamma) / (1 + gamma)
        per_step = float(z.ln() / Decimal(scheme.scale_base))
        return float((Decimal(per_step) * steps).exp())
