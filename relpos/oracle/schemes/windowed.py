"""As Shaw inside the window; outside it nothing is added to the score and nothing to the value."""

from __future__ import annotations

from relpos.oracle.number import Number
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import Windowed

__all__ = ["WindowedOracle"]


class WindowedOracle(SchemeOracle[Windowed]):
    """Vectors per distance inside the window, zero outside."""

    def _inside(self, query: Token, key: Token) -> bool:
        return -self.scheme.left <= key.position - query.position <= self.scheme.right

    def _index(self, h: int, query: Token, key: Token) -> tuple[int, int]:
        distance = key.position - query.position
        return (h if self.scheme.per_head else 0, distance + self.scheme.left)

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """scale * <q, K[j - i]> inside the window."""
        if not self.scheme.keys or not self._inside(query, key):
            return None
        row = self.params["key_table"][self._index(h, query, key)]
        return query.vector.dot(row) * self.tape.constant(scale)

    def value(self, h: int, value: Number, query: Token, key: Token) -> Number:
        """v + V[j - i] inside the window."""
        if not self.scheme.values or not self._inside(query, key):
            return value
        return value + self.params["value_table"][self._index(h, query, key)]
