"""score = scale * <q, k> + bias_table[h, bucket(j - i)].

The bucket is found by counting: logarithmic bucket number k of m begins where
(n / exact) ** m reaches (max_distance / exact) ** k, compared as fractions of whole numbers.
Nothing is shared with `relpos.distance`, which the twins use.
"""

from __future__ import annotations

from fractions import Fraction

from relpos.oracle.number import Number
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import T5, GatedT5

__all__ = ["T5Oracle", "bucket"]


def bucket(scheme: T5 | GatedT5, distance: int) -> int:
    """The bucket of one distance j - i."""
    if scheme.bidirectional:
        per_side = scheme.num_buckets // 2
        n = abs(distance)
        offset = per_side if distance > 0 else 0
    else:
        per_side = scheme.num_buckets
        n = max(-distance, 0)
        offset = 0
    exact = per_side // 2
    if n < exact:
        return offset + n
    m = per_side - exact
    found = 0
    while found + 1 < m:
        start = Fraction(scheme.max_distance, exact) ** (found + 1)
        if Fraction(n, exact) ** m < start:
            break
        found += 1
    return offset + exact + found


class T5Oracle(SchemeOracle[T5]):
    """A bias per head and bucket."""

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """bias_table[h, bucket(j - i)], not scaled."""
        return self.params["bias_table"][h, bucket(self.scheme, key.position - query.position)]
