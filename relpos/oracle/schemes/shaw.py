"""score = scale * <q, k + K[r]>, value = v + V[r], with r = clip(j - i, -left, right) + left."""

from __future__ import annotations

from relpos.oracle.number import Leaf, Number
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import Shaw

__all__ = ["ShawOracle"]


class ShawOracle(SchemeOracle[Shaw]):
    """Clipped vectors per distance."""

    def _row(self, table: Leaf, h: int, query: Token, key: Token) -> Number:
        distance = key.position - query.position
        if distance < -self.scheme.left:
            distance = -self.scheme.left
        if distance > self.scheme.right:
            distance = self.scheme.right
        head = h if self.scheme.per_head else 0
        return table[head, distance + self.scheme.left]

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """scale * <q, K[r]>."""
        if not self.scheme.keys:
            return None
        row = self._row(self.params["key_table"], h, query, key)
        return query.vector.dot(row) * self.tape.constant(scale)

    def value(self, h: int, value: Number, query: Token, key: Token) -> Number:
        """v + V[r]."""
        if not self.scheme.values:
            return value
        return value + self._row(self.params["value_table"], h, query, key)
