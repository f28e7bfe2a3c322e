"""score = scale * <q, k> + network(psi(|i - j|) / psi(max(i, L))), psi(x) = log(1 + c x)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from relpos.oracle.functions import logarithm, softplus
from relpos.oracle.number import Leaf, Number, Tape
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.oracle.schemes.network import answer, hidden_layers
from relpos.schemes import Fire

__all__ = ["FireOracle"]


class FireOracle(SchemeOracle[Fire]):
    """A small network of the distance over the query's position."""

    def __init__(self, scheme: Fire, params: Mapping[str, Leaf], tape: Tape) -> None:
        super().__init__(scheme, params, tape)
        self._hidden: dict[tuple[int, int], Number] = {}

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """The network's answer, not scaled."""
        pair = query.position, key.position
        if pair not in self._hidden:
            self._hidden[pair] = self._layers(*pair)
        return answer(self.params, h, self._hidden[pair])

    def _layers(self, i: int, j: int) -> Number:
        constant = self.tape.constant
        c = softplus(self.params["rate"][(0,)])
        start = softplus(self.params["stretch"][(0,)]) * constant(self.scheme.threshold)
        measure = constant(i) if i > float(start.value) else start
        share = self._psi(c, constant(abs(i - j))) * self._psi(c, measure).reciprocal()
        vector = share * constant(np.ones(1))
        return hidden_layers(self.params, vector, 1, "relu")

    def _psi(self, c: Number, x: Number) -> Number:
        return logarithm(self.tape.constant(1.0) + c * x)
