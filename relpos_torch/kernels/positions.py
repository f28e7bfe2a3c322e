"""Where the queries and the keys of one call stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from relpos.checks import Sizes, check_positions

__all__ = ["Positions", "distance_range", "position_range"]


@dataclass(frozen=True)
class Positions:
    """Positions of queries and keys.

    Attributes:
        query: [Lq] or [B, Lq]; None together with `key` is the default: keys at 0 .. Lk-1 and the
            queries at the last Lq of these places.
        key: [Lk] or [B, Lk].
        Lq: Number of queries.
        Lk: Number of keys.
        causal: Keys at later positions than the query's are never read.
        axes: Positions of queries [B or 1, Lq, A] and keys [B or 1, Lk, A] where they have several
            axes; `query` and `key` are then the default, the order of the tokens.
    """

    query: Int[Tensor, "*Bq Lq"] | None
    key: Int[Tensor, "*Bk Lk"] | None
    Lq: int
    Lk: int
    causal: bool
    axes: tuple[Int[Tensor, "Bq Lq A"], Int[Tensor, "Bk Lk A"]] | None = None

    @classmethod
    def of(
        cls,
        query: Int[Tensor, "..."] | None,
        key: Int[Tensor, "..."] | None,
        sizes: Sizes,
        causal: bool,
        axes: int = 1,
    ) -> Positions:
        """Checked positions; where only one side is given the other is the default's."""
        B, Lq, Lk = sizes.B, sizes.Lq, sizes.Lk
        for name, given, L in (("query_positions", query, Lq), ("key_positions", key, Lk)):
            if given is not None:
                check_positions(name, tuple(given.shape), str(given.dtype), B, L, axes)
        # Widened first: the difference of two positions does not fit the narrow types.
        query = None if query is None else query.long()
        key = None if key is None else key.long()
        if query is not None and key is None:
            key = torch.arange(Lk, device=query.device)
        elif key is not None and query is None:
            query = torch.arange(Lk - Lq, Lk, device=key.device)
        if query is not None and key is not None and (query.ndim == 3 or key.ndim == 3):
            along = [
                at if at.ndim == 3 else at.reshape(-1, L, 1).expand(-1, L, axes)
                for at, L in ((query, Lq), (key, Lk))
            ]
            return cls(None, None, Lq, Lk, causal, (along[0], along[1]))
        return cls(query, key, Lq, Lk, causal)

    def along_axes(self, device: torch.device) -> tuple[Int[Tensor, "..."], Int[Tensor, "..."]]:
        """The positions with all of their axes; without an axis of that kind there is one."""
        if self.axes is None:
            return self.tensors(device)
        return self.axes[0].to(device), self.axes[1].to(device)

    def tensors(self, device: torch.device) -> tuple[Int[Tensor, "*Bq Lq"], Int[Tensor, "*Bk Lk"]]:
        """The positions as tensors, the default's written out."""
        if self.query is None or self.key is None:
            return (
                torch.arange(self.Lk - self.Lq, self.Lk, device=device),
                torch.arange(self.Lk, device=device),
            )
        return self.query.to(device), self.key.to(device)

    def at(
        self,
        coordinates: tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]] | None,
        device: torch.device,
    ) -> Positions:
        """Where queries and keys stand by other coordinates; None is these positions."""
        if coordinates is None:
            return self
        query, key = self.tensors(device)
        of_query, of_key = coordinates
        return replace(self, query=of_query(query), key=of_key(key))


def distance_range(positions: Positions) -> tuple[int, int] | None:
    """The lowest and highest distance j - i that a call reads, or None where values cannot be seen.

    Values cannot be seen while a compiler traces the call and under `torch.func.vmap`.
    """
    if positions.query is None or positions.key is None:
        lowest, highest = 1 - positions.Lk, positions.Lq - 1
    elif torch.compiler.is_compiling():
        return None
    else:
        query, key = positions.query, positions.key.to(positions.query.device)
        low = (key.amin(-1) - query.amax(-1)).amin()
        high = (key.amax(-1) - query.amin(-1)).amax()
        try:
            lowest, highest = int(low), int(high)
        except RuntimeError:  # torch.func.vmap and the meta device refuse .item()
            return None
    if positions.causal:
        # Where every key stands after every query none is read: an empty range has no ends.
        highest = min(highest, 0)
        lowest = min(lowest, highest)
    return lowest, highest


def position_range(positions: Positions) -> tuple[int, int] | None:
    """The lowest and highest position of a call, or None where values cannot be seen."""
    if positions.query is None or positions.key is None:
        return min(positions.Lk - positions.Lq, 0), positions.Lk - 1
    if torch.compiler.is_compiling():
        return None
    ends = [end for at in (positions.query, positions.key) for end in (at.amin(), at.amax())]
    try:
        found = [int(end) for end in ends]
    except RuntimeError:  # torch.func.vmap and the meta device refuse .item()
        return None
    return min(found), max(found)
