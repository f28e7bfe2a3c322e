"""score = scale * <q, k> + sum of log f over the keys after this one and not after the query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relpos.oracle.functions import difference_of_sums, softplus
from relpos.oracle.number import Number
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import ForgettingAttention

__all__ = ["ForgettingAttentionOracle"]

_FIRST = np.array(0)


class ForgettingAttentionOracle(SchemeOracle[ForgettingAttention]):
    """The logarithms of the gates between a key and its query."""

    def added_row(
        self, h: int, query: Token, keys: Sequence[Token], scale: float
    ) -> list[Number | None]:
        """sum of log f over p_j < p_l <= p_i."""
        logarithms = []
        for key in keys:
            assert key.features is not None
            # log sigmoid(x) = -log(1 + exp -x)
            logarithms.append(-softplus(-key.features.take(_FIRST)))
        return [self._between(query, key, keys, logarithms) for key in keys if key.allowed]

    def _between(
        self, query: Token, key: Token, keys: Sequence[Token], logarithms: Sequence[Number]
    ) -> Number | None:
        if key.position > query.position:
            return None
        between, shared = [], []
        for logarithm, other in zip(logarithms, keys, strict=True):
            if other.position <= key.position:
                shared.append(logarithm)
            elif other.position <= query.position:
                between.append(logarithm)
        return difference_of_sums(between, shared)
