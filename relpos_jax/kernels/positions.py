"""Where the queries and the keys of one call stand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from relpos.checks import Sizes, check_position_range, check_positions

__all__ = ["Positions", "distance_range", "position_range"]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["query", "key", "axes"],
    meta_fields=["Lq", "Lk", "causal"],
)
@dataclass(frozen=True)
class Positions:
    """Positions of queries and keys.

    Attributes:
        query: [B, Lq], for one sequence [Lq]; None together with `key` is the default: keys at
            0 .. Lk-1 and the queries at the last Lq of these places.
        key: [B, Lk], for one sequence [Lk].
        Lq: Number of queries.
        Lk: Number of keys.
        causal: Keys at later positions than the query's are never read.
        axes: Positions of queries [B, Lq, A] and keys [B, Lk, A] where they have several axes;
            `query` and `key` are then the default, the order of the tokens.
    """

    # Any: JAX also rebuilds the record around placeholders that are no arrays.
    query: Any
    key: Any
    Lq: int
    Lk: int
    causal: bool
    axes: Any = None

    @classmethod
    def of(
        cls,
        query: Int[Array, "..."] | None,
        key: Int[Array, "..."] | None,
        sizes: Sizes,
        causal: bool,
        axes: int = 1,
    ) -> Positions:
        """Checked positions; where only one side is given the other is the default's."""
        B, Lq, Lk = sizes.B, sizes.Lq, sizes.Lk
        for name, given, L in (("query_positions", query, Lq), ("key_positions", key, Lk)):
            if given is not None:
                check_positions(name, given.shape, str(given.dtype), B, L, axes)
        if query is None and key is None:
            return cls(None, None, Lq, Lk, causal)
        query = jnp.arange(Lk - Lq, Lk) if query is None else _whole(query)
        key = jnp.arange(Lk) if key is None else _whole(key)
        if query.ndim == 3 or key.ndim == 3:
            along = tuple(
                jnp.broadcast_to(
                    at if at.ndim == 3 else jnp.atleast_2d(at)[..., None], (B, L, axes)
                )
                for at, L in ((query, Lq), (key, Lk))
            )
            return cls(None, None, Lq, Lk, causal, along)
        return cls(jnp.broadcast_to(query, (B, Lq)), jnp.broadcast_to(key, (B, Lk)), Lq, Lk, causal)

    def along_axes(self) -> tuple[Int[Array, "..."], Int[Array, "..."]]:
        """The positions with all of their axes; without an axis of that kind there is one."""
        if self.axes is None:
            return self.arrays()
        query, key = self.axes
        return query, key

    def arrays(self) -> tuple[Int[Array, "*Bq Lq"], Int[Array, "*Bk Lk"]]:
        """The positions as arrays, the default's written out."""
        if self.query is None or self.key is None:
            return jnp.arange(self.Lk - self.Lq, self.Lk), jnp.arange(self.Lk)
        return self.query, self.key

    def at(
        self, coordinates: tuple[Callable[[Array], Array], Callable[[Array], Array]] | None
    ) -> Positions:
        """Where queries and keys stand by other coordinates; None is these positions."""
        if coordinates is None:
            return self
        query, key = self.arrays()
        of_query, of_key = coordinates
        return replace(self, query=of_query(query), key=of_key(key))


def _whole(positions: Int[Array, "..."]) -> Int[Array, "..."]:
    """Positions in JAX's default integers, half of whose range distances can be taken in."""
    if not isinstance(positions, jax.core.Tracer):
        values = np.asarray(positions)
        check_position_range(int(values.min()), int(values.max()))
    return jnp.asarray(positions).astype(jnp.asarray(0).dtype)


def distance_range(positions: Positions) -> tuple[int, int] | None:
    """The lowest and highest distance j - i that a call reads, or None where values are traced.

    So are the lengths themselves where `jax.export` knows them by letter only.
    """
    if any(map(jax.export.is_symbolic_dim, (positions.Lq, positions.Lk))):
        return None
    if positions.query is None or positions.key is None:
        lowest, highest = 1 - positions.Lk, positions.Lq - 1
    elif isinstance(positions.query, jax.core.Tracer) or isinstance(positions.key, jax.core.Tracer):
        return None
    else:
        query, key = np.asarray(positions.query), np.asarray(positions.key)
        lowest = int((key.min(-1) - query.max(-1)).min())
        highest = int((key.max(-1) - query.min(-1)).max())
    if positions.causal:
        # Where every key stands after every query none is read: an empty range has no ends.
        highest = min(highest, 0)
        lowest = min(lowest, highest)
    return lowest, highest


def position_range(positions: Positions) -> tuple[int, int] | None:
    """The lowest and highest position of a call, or None where values, or lengths, are traced."""
    if any(map(jax.export.is_symbolic_dim, (positions.Lq, positions.Lk))):
        return None
    if positions.query is None or positions.key is None:
        return min(positions.Lk - positions.Lq, 0), positions.Lk - 1
    if isinstance(positions.query, jax.core.Tracer) or isinstance(positions.key, jax.core.Tracer):
        return None
    query, key = np.asarray(positions.query), np.asarray(positions.key)
    return int(min(query.min(), key.min())), int(max(query.max(), key.max()))
