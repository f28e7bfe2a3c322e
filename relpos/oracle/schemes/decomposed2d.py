"""score = scale * <q, k> + s * <q, row_table[yj - yi] + column_table[xj - xi]>, s = scale or 1."""

from __future__ import annotations

from relpos.oracle.number import Number
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import Decomposed2D

__all__ = ["Decomposed2DOracle"]


class Decomposed2DOracle(SchemeOracle[Decomposed2D]):
    """A vector per offset of rows, another per offset of columns."""

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """s * (<q, row> + <q, column>)."""
        height, width = self.scheme.height, self.scheme.width
        query_y, query_x = divmod(query.position, width)
        key_y, key_x = divmod(key.position, width)
        head = h if self.scheme.per_head else 0
        row = self.params["row_table"][head, key_y - query_y + height - 1]
        column = self.params["column_table"][head, key_x - query_x + width - 1]
        product = query.vector.dot(row) + query.vector.dot(column)
        return product * self.tape.constant(scale if self.scheme.scaled else 1.0)
