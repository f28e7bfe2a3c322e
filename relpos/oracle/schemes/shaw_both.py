"""score = scale * (<q, k> + <q, K[r]> + <k, K[r]>), with r = clip(j - i, -left, right) + left."""

from __future__ import annotations

from relpos.oracle.number import Number
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import ShawBoth

__all__ = ["ShawBothOracle"]


class ShawBothOracle(SchemeOracle[ShawBoth]):
    """Clipped vectors per distance that meet queries and keys."""

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """scale * (<q, K[r]> + <k, K[r]>)."""
        distance = key.position - query.position
        if distance < -self.scheme.left:
            distance = -self.scheme.left
        if distance > self.scheme.right:
            distance = self.scheme.right
        head = h if self.scheme.per_head else 0
        row = self.params["key_table"][head, distance + self.scheme.left]
        return (query.vector.dot(row) + key.vector.dot(row)) * self.tape.constant(scale)
