"""What an oracle of a scheme must say: the scores of one query, and the value read from one key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from relpos.oracle.number import Leaf, Number, Tape
from relpos.schemes import Scheme

__all__ = ["SchemeOracle", "Token"]

S = TypeVar("S", bound=Scheme)


@dataclass(frozen=True, eq=False)
class Token:
    """A query or a key in one head.

    Attributes:
        vector: q or k.
        position: Where it stands.
        features: What the scheme reads of the token beside that, if anything.
        allowed: For a key: whether the query at hand may attend to it.
        axes: Where it stands along each axis, if positions have several; `position` is then its
            number among the keys.
    """

    vector: Number
    position: int
    features: Number | None = None
    allowed: bool = True
    axes: tuple[int, ...] = ()


class SchemeOracle(Generic[S]):
    """One scheme's formula for one query.

    A scheme whose score of a pair depends on that pair alone says `added`, and `content` if it
    changes q and k; one that looks at the keys between says `added_row`.

    Args:
        scheme: The settings.
        params: The scheme's parameters by name.
        tape: Where the operations are recorded.

    Attributes:
        num_heads: Heads of the model, for numbers that are fixed by it for every head.
        first_head: Which of them head 0 is: not 0 where one head is asked about alone.
    """

    num_heads: int = 1
    first_head: int = 0

    def __init__(self, scheme: S, params: Mapping[str, Leaf], tape: Tape) -> None:
        self.scheme, self.params, self.tape = scheme, params, tape
        #: What a scheme makes of each q and k, once, however many pairs they are in.
        self.turned: dict[Number, Number] = {}

    def begin(
        self, query_positions: NDArray[np.integer], key_positions: NDArray[np.integer]
    ) -> None:
        """Take note of all positions of a batch row, before any of its scores is asked for."""

    def scores(self, h: int, query: Token, keys: Sequence[Token], scale: float) -> list[Number]:
        """The scores of a query and every key that it may attend to, in head h."""
        attended = [key for key in keys if key.allowed]
        added = self.added_row(h, query, keys, scale)
        content = [self.content(h, query, key, scale) for key in attended]
        return [
            score if extra is None else score + extra
            for score, extra in zip(content, added, strict=True)
        ]

    def relative(
        self, h: int, query: Token, keys: Sequence[Token], scale: float
    ) -> list[Number | None]:
        """What the scheme adds to scale * <q, k>, for every key that the query may attend to."""
        added = self.added_row(h, query, keys, scale)
        if type(self).content is SchemeOracle.content:
            return added
        scores = self.scores(h, query, keys, scale)
        plain = [SchemeOracle.content(self, h, query, key, scale) for key in keys if key.allowed]
        return [score - other for score, other in zip(scores, plain, strict=True)]

    def content(self, h: int, query: Token, key: Token, scale: float) -> Number:
        """scale * <q, k>."""
        return query.vector.dot(key.vector) * self.tape.constant(scale)

    def added_row(
        self, h: int, query: Token, keys: Sequence[Token], scale: float
    ) -> list[Number | None]:
        """What is added to the content for every key that the query may attend to.

        `keys` are all keys, in the order in which they come, whether they may be attended to or
        not.
        """
        return [self.added(h, query, key, scale) for key in keys if key.allowed]

    def added(self, h: int, query: Token, key: Token, scale: float) -> Number | None:
        """What is added to the content of one pair; None is nothing at all."""
        return None

    def value(self, h: int, value: Number, query: Token, key: Token) -> Number:
        """What the query reads from the value of a key."""
        return value
