"""score = scale * <q, k + E(j - i)>, with E a row up to the reach, and 0 for keys to come."""

from __future__ import annotations

from relpos.oracle.number import Number
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import MusicTransformer

__all__ = ["MusicTransformerOracle"]


class MusicTransformerOracle(SchemeOracle[MusicTransformer]):
    """Vectors per distance into the past."""

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """scale * <q, E(j - i)>; nothing for keys after the query."""
        back, reach = query.position - key.position, self.scheme.reach
        if back < 0 or (back > reach and self.scheme.beyond == "zero"):
            return None
        head = h if self.scheme.per_head else 0
        row = self.params["key_table"][head, reach - min(back, reach)]
        return query.vector.dot(row) * self.tape.constant(scale)
