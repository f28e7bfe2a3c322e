"""score = scale * <q, k> + bias_table[h, r], r the offset of two patches or one of three others."""

from __future__ import annotations

from relpos.oracle.number import Number
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import BEiT

__all__ = ["BEiTOracle", "entry"]


def entry(scheme: BEiT, query: int, key: int) -> int:
    """The table's row for a query and a key at these positions."""
    height, width = scheme.height, scheme.width
    offsets = (2 * height - 1) * (2 * width - 1)
    if query == 0 and key == 0:
        return offsets + 2
    if key == 0:
        return offsets + 1
    if query == 0:
        return offsets
    query_y, query_x = divmod(query - 1, width)
    key_y, key_x = divmod(key - 1, width)
    return (key_y - query_y + height - 1) * (2 * width - 1) + key_x - query_x + width - 1


class BEiTOracle(SchemeOracle[BEiT]):
    """A bias per head and entry."""

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """bias_table[h, r], not scaled."""
        return self.params["bias_table"][h, entry(self.scheme, query.position, key.position)]
