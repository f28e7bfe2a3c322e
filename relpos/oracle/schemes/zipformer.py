"""score = scale * <q, k> + <query features, s(j - i) @ position_kernel>; s compresses distances."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from relpos.oracle.functions import arctangent, cosine_of, logarithm, sine_of
from relpos.oracle.number import Leaf, Number, Tape
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.schemes import Zipformer

__all__ = ["ZipformerOracle"]


class ZipformerOracle(SchemeOracle[Zipformer]):
    """Projected encodings of compressed distances."""

    def __init__(self, scheme: Zipformer, params: Mapping[str, Leaf], tape: Tape) -> None:
        super().__init__(scheme, params, tape)
        self._projected: dict[tuple[int, int], Number] = {}

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """<query features, s(j - i) @ position_kernel>, not scaled."""
        x, clamp = key.position - query.position, self.scheme.clamp
        if clamp is not None:
            x = max(-clamp, min(x, clamp))
        if (h, x) not in self._projected:
            self._projected[h, x] = self._s(x).through(self.params["position_kernel"][h,])
        assert query.features is not None
        return query.features.dot(self._projected[h, x])

    def _s(self, x: int) -> Number:
        tape, E = self.tape, self.scheme.width
        c = math.sqrt(E)
        compressed = logarithm(tape.constant(1 + abs(x) / c, rounded=True))
        stretch = math.copysign(2 * math.pi * c / (self.scheme.length_factor * E), x)
        angle = arctangent(compressed * tape.constant(stretch, rounded=True))
        channel = np.arange(E)
        angles = angle * tape.constant((1 + channel // 2).astype(np.float64))
        is_cosine = channel % 2 == 0
        is_sine = ~is_cosine & (channel < E - 1)
        parts = (
            cosine_of(angles) * tape.constant(is_cosine.astype(float)),
            sine_of(angles) * tape.constant(is_sine.astype(float)),
            tape.constant((channel == E - 1).astype(float)),
        )
        return tape.total(parts)
