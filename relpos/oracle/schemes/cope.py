"""score = scale * <q, k> + <q, e> between the rows on both sides of the place that is counted."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relpos.oracle.functions import sigmoid
from relpos.oracle.number import Number
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import CoPE

__all__ = ["CoPEOracle"]


class CoPEOracle(SchemeOracle[CoPE]):
    """Places counted by gates, between two rows of the table."""

    def added_row(
        self, h: int, query: Token, keys: Sequence[Token], scale: float
    ) -> list[Number | None]:
        """The product of q with the table at the place of each key."""
        attended = [key for key in keys if key.allowed]
        gates = [sigmoid(self.content(h, query, key, scale)) for key in attended]
        added: list[Number | None] = []
        for key in attended:
            counted = [
                gate
                for gate, other in zip(gates, attended, strict=True)
                if other.position >= key.position
            ]
            product = self._at(h, query, self.tape.total(counted))
            factor = scale if self.scheme.scaled else 1.0
            added.append(product * self.tape.constant(factor))
        return added

    def _at(self, h: int, query: Token, place: Number) -> Number:
        table, head = self.params["position_embedding"], h if self.scheme.per_head else 0
        last = self.scheme.num_positions - 1
        if place.value >= last:
            return query.vector.dot(table[head, last])
        n = math.floor(place.value)
        weight = place - self.tape.constant(n)
        rest = self.tape.constant(1.0) - weight
        below, above = (query.vector.dot(table[head, row]) for row in (n, n + 1))
        return rest * below + weight * above
