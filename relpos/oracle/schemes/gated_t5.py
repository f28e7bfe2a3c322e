"""score = scale * <q, k> + gate * bias_table[h, bucket(j - i)].

The gate of a query with features f is a * (c * gate_scale[h] - 1) + 2, where a and c are the
sigmoids of the sum of its first and of its last four features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relpos.oracle.functions import sigmoid
from relpos.oracle.number import Number
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.oracle.schemes.t5 import bucket
from relpos.schemes import GatedT5

__all__ = ["GatedT5Oracle"]


class GatedT5Oracle(SchemeOracle[GatedT5]):
    """A bias per head and bucket, times a gate per query."""

    def _gate(self, h: int, features: Number) -> Number:
        first, last = (self.tape.constant(half) for half in np.repeat(np.eye(2), 4, axis=1))
        a, c = sigmoid(features.dot(first)), sigmoid(features.dot(last))
        one, two = self.tape.constant(1.0), self.tape.constant(2.0)
        return a * (c * self.params["gate_scale"][(h,)] - one) + two

    def added_row(
        self, h: int, query: Token, keys: Sequence[Token], scale: float
    ) -> list[Number | None]:
        """gate * bias_table[h, bucket(j - i)], not scaled; the gate is one for all keys."""
        assert query.features is not None
        gate, table = self._gate(h, query.features), self.params["bias_table"]
        return [
            gate * table[h, bucket(self.scheme, key.position - query.position)]
            for key in keys
            if key.allowed
        ]
