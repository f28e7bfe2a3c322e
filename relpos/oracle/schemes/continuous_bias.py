"""score = scale * <q, k> + network(x(j - i)), x the distance or its logarithm with its sign."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from relpos.oracle.number import Leaf, Number, Tape
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.oracle.schemes.network import answer, hidden_layers
from relpos.schemes import ContinuousBias

__all__ = ["ContinuousBiasOracle"]


class ContinuousBiasOracle(SchemeOracle[ContinuousBias]):
    """A small network, asked once for every distance: all pairs with it share its errors."""

    def __init__(self, scheme: ContinuousBias, params: Mapping[str, Leaf], tape: Tape) -> None:
        super().__init__(scheme, params, tape)
        self._hidden: dict[int, Number] = {}
        self._answers: dict[tuple[int, int], Number] = {}

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """The network's answer, not scaled."""
        distance = key.position - query.position
        if distance not in self._hidden:
            self._hidden[distance] = self._layers(distance)
        if (h, distance) not in self._answers:
            self._answers[h, distance] = answer(self.params, h, self._hidden[distance])
        return self._answers[h, distance]

    def _layers(self, distance: int) -> Number:
        logarithmic = self.scheme.distance == "log"
        size = math.log(1 + abs(distance)) if logarithmic else float(abs(distance))
        x = self.tape.constant(np.array([math.copysign(size, distance)]), rounded=logarithmic)
        return hidden_layers(self.params, x, self.scheme.depth, self.scheme.activation)
