"""What an oracle of a scheme must say: the score of one pair, and the value read from one key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from relpos.oracle.number import Leaf, Number, Tape
from relpos.schemes import Scheme

__all__ = ["SchemeOracle"]

S = TypeVar("S", bound=Scheme)


class SchemeOracle(Generic[S]):
    """One scheme's formula for one query and one key.

    Args:
        scheme: The settings.
        params: The scheme's parameters by name.
        tape: Where the operations are recorded.
    """

    def __init__(self, scheme: S, params: Mapping[str, Leaf], tape: Tape) -> None:
        self.scheme, self.params, self.tape = scheme, params, tape

    def begin(
        self, query_positions: NDArray[np.integer], key_positions: NDArray[np.integer]
    ) -> None:
        """Take note of all positions of a batch row, before any of its scores is asked for."""

    def score(self, h: int, q: Number, k: Number, i: int, j: int, scale: float) -> Number:
        """The score of query q at position i and key k at position j in head h."""
        content = q.dot(k) * self.tape.constant(scale)
        added = self.added(h, q, k, i, j, scale)
        return content if added is None else content + added

    def added(self, h: int, q: Number, k: Number, i: int, j: int, scale: float) -> Number | None:
        """What the scheme adds to scale * <q, k>; None is nothing at all."""
        return None

    def value(self, h: int, v: Number, i: int, j: int) -> Number:
        """What the query reads from value v of the key at position j."""
        return v
