"""score = scale * (<q, k> + <q, K[row(j-i)]> + <k, Q[row(j-i)]>), K and Q projected from one table.

The bucket is found by counting: a distance n beyond m, the half of the buckets, lies in the first
logarithmic bucket number k for which (n / m) ** (m - 1) is at most ((max_distance - 1) / m) ** k,
compared as fractions of whole numbers. Nothing is shared with `relpos.distance`, which the twins
use.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from relpos.oracle.functions import standardised
from relpos.oracle.number import Leaf, Number, Tape
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import DeBERTa

__all__ = ["DeBERTaOracle", "row"]


def row(scheme: DeBERTa, distance: int) -> int:
    """The table row of one distance j - i, in ascending order of distances."""
    n = abs(distance)
    step = n
    if scheme.buckets is not None:
        m = scheme.buckets // 2
        if n > m:
            k = 1
            # The last bucket of all holds what is farther.
            while k < m and Fraction(n, m) ** (m - 1) > Fraction(scheme.max_distance - 1, m) ** k:
                k += 1
            step = m + k
    span = scheme.num_rows // 2
    found = span - 1 + (step if distance > 0 else -step)
    if found < 0:
        found = 0
    if found > 2 * span - 1:
        found = 2 * span - 1
    return found


class DeBERTaOracle(SchemeOracle[DeBERTa]):
    """Projected rows of a table, for queries, for keys, or for both."""

    def __init__(self, scheme: DeBERTa, params: Mapping[str, Leaf], tape: Tape) -> None:
        super().__init__(scheme, params, tape)
        self._rows: dict[int, Number] = {}
        self._projected: dict[tuple[str, int, int], Number] = {}

    def _row(self, r: int) -> Number:
        """P[r]."""
        if r not in self._rows:
            vector = self.params["position_table"][0, r]
            if self.scheme.norm_eps is not None:
                normed = standardised(vector, self.scheme.norm_eps)
                scale = self.params["position_norm_scale"][(0,)]
                vector = normed * scale + self.params["position_norm_bias"][(0,)]
            self._rows[r] = vector
        return self._rows[r]

    def _position(self, side: str, h: int, r: int) -> Number:
        """K[h, r] or Q[h, r]."""
        if (side, h, r) not in self._projected:
            vector = self._row(r).through(self.params[f"position_{side}_kernel"][(h,)])
            if side == "query" or self.scheme.key_bias:
                vector = vector + self.params[f"position_{side}_bias"][(h,)]
            self._projected[side, h, r] = vector
        return self._projected[side, h, r]

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """scale * <q, K[row(j - i)]> + scale * <k, Q[row(j - i)]>."""
        r = row(self.scheme, key.position - query.position)
        factor = self.tape.constant(scale)
        terms = []
        if self.scheme.c2p:
            terms.append(query.vector.dot(self._position("key", h, r)) * factor)
        if self.scheme.p2c:
            terms.append(key.vector.dot(self._position("query", h, r)) * factor)
        return self.tape.total(terms)
