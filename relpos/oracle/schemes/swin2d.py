"""score = scale * <q, k> + bias_table[h, r], with r the number of the offset from query to key."""

from __future__ import annotations

from relpos.oracle.number import Number
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import Swin2D

__all__ = ["Swin2DOracle"]


class Swin2DOracle(SchemeOracle[Swin2D]):
    """A bias per head and offset: those of the first row of offsets, then of the second, ..."""

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """bias_table[h, r], not scaled."""
        height, width = self.scheme.height, self.scheme.width
        query_y, query_x = divmod(query.position, width)
        key_y, key_x = divmod(key.position, width)
        down = key_y - query_y + height - 1
        right = key_x - query_x + width - 1
        return self.params["bias_table"][h, down * (2 * width - 1) + right]
