"""score = scale * <q, k> + 16 sigmoid(<max(0, a W + b), w[h]>), a the logarithmic coordinates.

Each coordinate is sign(x) log2(1 + abs(x)) / log2(8), where x counts cells from the key to the
query, in eighths of the window's longest such way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from relpos.oracle.functions import rectified, sigmoid
from relpos.oracle.number import Leaf, Number, Tape
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import SwinV2

__all__ = ["SwinV2Oracle", "coordinate"]


def coordinate(way: int, cells: int) -> float:
    """The coordinate of so many cells from key to query, measured by a window of `cells`."""
    if way == 0:
        return 0.0
    x = 8 * way / (cells - 1)
    return math.copysign(math.log(1 + abs(x), 8), x)


class SwinV2Oracle(SchemeOracle[SwinV2]):
    """A small network, asked once for every offset: all pairs with an offset share its errors."""

    def __init__(self, scheme: SwinV2, params: Mapping[str, Leaf], tape: Tape) -> None:
        super().__init__(scheme, params, tape)
        self._answers: dict[tuple[int, int, int], Number] = {}

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """16 sigmoid of the network's answer, not scaled."""
        query_y, query_x = divmod(query.position, self.scheme.width)
        key_y, key_x = divmod(key.position, self.scheme.width)
        offset = h, key_y - query_y, key_x - query_x
        if offset not in self._answers:
            self._answers[offset] = self._bias(*offset)
        return self._answers[offset]

    def _bias(self, h: int, dy: int, dx: int) -> Number:
        rows = self.scheme.pretrained_height or self.scheme.height
        columns = self.scheme.pretrained_width or self.scheme.width
        a = self.tape.constant(
            np.array([coordinate(-dy, rows), coordinate(-dx, columns)]), rounded=True
        )
        before = a.through(self.params["hidden_kernel"][(0,)]) + self.params["hidden_bias"][(0,)]
        answer = rectified(before).dot(self.params["output_kernel"][(h,)])
        return sigmoid(answer) * self.tape.constant(16.0)
