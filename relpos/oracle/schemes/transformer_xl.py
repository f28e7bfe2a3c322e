"""score = scale * (<q + content_bias, k> + <q + position_bias, s(i - j) @ position_kernel>)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from decimal import Context, Decimal, localcontext
from fractions import Fraction

from relpos.oracle.number import Leaf, Number, Tape, sinusoid
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import TransformerXL

__all__ = ["TransformerXLOracle", "frequency"]


class TransformerXLOracle(SchemeOracle[TransformerXL]):
    """Projected sinusoids of the distance."""

    def __init__(self, scheme: TransformerXL, params: Mapping[str, Leaf], tape: Tape) -> None:
        super().__init__(scheme, params, tape)
        self._projected: dict[tuple[int, int], Number] = {}

    def content(self, h: int, query: Token, key: Token, scale: float) -> Number:
        """scale * <q + content_bias, k>."""
        q = query.vector + self.params["content_bias"][h,]
        return q.dot(key.vector) * self.tape.constant(scale)

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """scale * <q + position_bias, p(i - j)>."""
        q = query.vector + self.params["position_bias"][h,]
        return q.dot(self._p(h, query.position - key.position)) * self.tape.constant(scale)

    def _p(self, h: int, x: int) -> Number:
        clamp = self.scheme.clamp
        if clamp is not None and x > clamp:
            x = clamp
        if clamp is not None and x < -clamp:
            x = -clamp
        if self.scheme.symmetric and x < 0:
            x = -x
        if (h, x) not in self._projected:
            matrix = self.params["position_kernel"][h,]
            self._projected[h, x] = self._s(x).through(matrix)
        return self._projected[h, x]

    def _s(self, x: int) -> Number:
        E, angles, is_sine = self.scheme.width, [], []
        for channel in range(E):
            if self.scheme.order == "concat":
                m, sine = channel % (E // 2), channel < E // 2
            else:
                m, sine = channel // 2, channel % 2 == 0
            angles.append(x * Fraction(frequency(self.scheme, m)))
            is_sine.append(sine)
        return sinusoid(self.tape, angles, is_sine)


@functools.cache
def frequency(scheme: TransformerXL, m: int) -> float:
    """Radians per position of sine and cosine number m, the nearest float64."""
    with localcontext(Context(prec=45)):
        return float(1 / Decimal(scheme.base) ** (Decimal(2 * m) / scheme.width))
