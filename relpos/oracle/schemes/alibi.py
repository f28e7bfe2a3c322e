"""score = scale * <q, k> - slope * |j - i|.

The slopes follow the rule of the paper's code, which sets out from the first slope: 2 ** (-8 / n)
for n heads, a power of two, and multiplies by it from head to head.
"""

from __future__ import annotations

import math

from relpos.oracle.number import Number
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import ALiBi

__all__ = ["ALiBiOracle", "fixed_slope"]


def fixed_slope(scheme: ALiBi, h: int, num_heads: int) -> float:
    """The slope of head h."""
    biased = num_heads - scheme.unbiased_heads
    if h >= biased:
        return 0.0
    nearest = 1
    while 2 * nearest <= biased:
        nearest *= 2
    if h < nearest:
        number, heads = h + 1, nearest
    else:
        number, heads = 2 * (h - nearest) + 1, 2 * nearest
    return math.exp(-math.log(2.0) * scheme.max_bias * number / heads)


class ALiBiOracle(SchemeOracle[ALiBi]):
    """A penalty per head, proportional to distance."""

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """-slope * |j - i|, or slope * (j - i); times the scale if it is added before that."""
        if self.scheme.learned:
            slope = self.params["slopes"][(h,)]
        else:
            fixed = fixed_slope(self.scheme, self.first_head + h, self.num_heads)
            slope = self.tape.constant(fixed, rounded=True)
        distance = key.position - query.position
        steps = -abs(distance) if self.scheme.symmetric else distance
        bias = slope * self.tape.constant(steps)
        return bias * self.tape.constant(scale) if self.scheme.scaled else bias
