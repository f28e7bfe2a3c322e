"""score = scale * <q, k> - 1/ratio * sum_m (1 - cos((j - i) f_m))."""

from __future__ import annotations

import functools
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np

from relpos.oracle.number import Number, cosine
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import Sandwich

__all__ = ["SandwichOracle"]


class SandwichOracle(SchemeOracle[Sandwich]):
    """A fixed sum of cosines of the distance."""

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """The sum by the head's ratio, not scaled."""
        frequency = _frequencies(self.scheme)
        angles = [(key.position - query.position) * f for f in frequency]
        fallen = cosine(self.tape, angles) - self.tape.constant(np.ones(len(frequency)))
        head = self.first_head + h + 1
        weight = self.num_heads / (self.scheme.max_ratio * head)
        return fallen.dot(self.tape.constant(np.full(len(frequency), weight), rounded=True))


@functools.cache
def _frequencies(scheme: Sandwich) -> tuple[Fraction, ...]:
    with localcontext(Context(prec=45)):
        return tuple(
            Fraction(float(1 / Decimal(scheme.base) ** (Decimal(2 * m) / scheme.width)))
            for m in range(scheme.first, scheme.first + scheme.width // 2)
        )
