"""score = scale * <q, k> + <f, bank[h, j-i+E-1]> for 0 <= i - j < E, else the content alone."""

from __future__ import annotations

from relpos.oracle.number import Number
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import LowRankBank

__all__ = ["LowRankBankOracle"]


class LowRankBankOracle(SchemeOracle[LowRankBank]):
    """Profiles over distances, mixed by each query."""

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """<f, bank[h, j - i + E - 1]>, not scaled; None outside the extent."""
        back = query.position - key.position
        if back < 0 or back >= self.scheme.extent:
            return None
        assert query.features is not None
        head = h if self.scheme.per_head else 0
        return query.features.dot(self.params["bank"][head, self.scheme.extent - 1 - back])
