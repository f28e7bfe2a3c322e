"""score = scale * <R(i) q, R(j) k>: pair number m is turned by position * base ** (-2m / r)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from relpos.oracle.number import Number, cosine, sine
from relpos.oracle.schemes.base import SchemeOracle
from relpos.schemes import RoPE

__all__ = ["RoPEOracle"]


class RoPEOracle(SchemeOracle[RoPE]):
    """Rotation of channel pairs."""

    def _rotate(self, x: Number, position: int) -> Number:
        d = len(x.value)
        r = self.scheme.rotated(d)
        # For every channel: its partner, its angle, and the sign of the partner's share.
        partner, angle, sign = list(range(d)), [Fraction(0)] * d, [0.0] * d
        for m in range(r // 2):
            first, second = (m, m + r // 2) if self.scheme.layout == "half" else (2 * m, 2 * m + 1)
            partner[first], partner[second] = second, first
            sign[first], sign[second] = -1.0, 1.0
            frequency = self.scheme.base ** (-2 * m / r)
            angle[first] = angle[second] = position * Fraction(frequency)
        turned = x.take(np.array(partner)) * self.tape.constant(np.array(sign))
        return x * cosine(self.tape, angle) + turned * sine(self.tape, angle)

    def score(self, h: int, q: Number, k: Number, i: int, j: int, scale: float) -> Number:
        """scale * <R(i) q, R(j) k>."""
        return self._rotate(q, i).dot(self._rotate(k, j)) * self.tape.constant(scale)

    def added(self, h: int, q: Number, k: Number, i: int, j: int, scale: float) -> Number | None:
        """The rotated score less the plain one."""
        return self.score(h, q, k, i, j, scale) - q.dot(k) * self.tape.constant(scale)
