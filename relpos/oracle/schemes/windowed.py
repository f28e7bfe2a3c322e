"""As Shaw inside the window; outside it nothing is added to the score and nothing to the value."""

from __future__ import annotations

from relpos.oracle.number import Number
from relpos.oracle.schemes.base import SchemeOracle
from relpos.schemes import Windowed

__all__ = ["WindowedOracle"]


class WindowedOracle(SchemeOracle[Windowed]):
    """Vectors per distance inside the window, zero outside."""

    def _inside(self, i: int, j: int) -> bool:
        return -self.scheme.left <= j - i <= self.scheme.right

    def _index(self, h: int, i: int, j: int) -> tuple[int, int]:
        return (h if self.scheme.per_head else 0, j - i + self.scheme.left)

    def added(self, h: int, q: Number, k: Number, i: int, j: int, scale: float) -> Number | None:
        """scale * <q, K[j - i]> inside the window."""
        if not self.scheme.keys or not self._inside(i, j):
            return None
        row = self.params["key_table"][self._index(h, i, j)]
        return q.dot(row) * self.tape.constant(scale)

    def value(self, h: int, v: Number, i: int, j: int) -> Number:
        """v + V[j - i] inside the window."""
        if not self.scheme.values or not self._inside(i, j):
            return v
        return v + self.params["value_table"][self._index(h, i, j)]
