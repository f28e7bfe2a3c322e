"""The position part of a block's scores, for one head.

At default positions a block of R rows is itself a call at default positions, of R queries, once
every table is laid out over all distances and cut to those that the block sees. So the functions
of `by_distance` serve it as they are. Features of keys would meet every distance for every key,
[Lk, R + Lk]: they go in tiles of R keys, of which each sees only 2R distances.

What is no function of the distance of default positions is asked for by position.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from relpos_jax.kernels import by_distance
from relpos_jax.kernels.dense import position_scores
from relpos_jax.kernels.lifting import apply
from relpos_jax.kernels.positions import Positions
from relpos_jax.kernels.terms import PairBias, Product, Table, Terms

__all__ = [
    "Strips",
    "key_scores",
    "laid_out",
    "pair_scores",
    "prepare",
    "strip_scores",
    "strip_values",
]

#: Rows whose pairs go through a function at a time: it may hold many numbers for each of them.
PAIR_ROWS = 8


@dataclass(frozen=True)
class Strips:
    """The terms of one head as blocks cut them.

    Attributes:
        near: Terms by the distance of default positions. The values of their tables are laid out
            over the distances -Lk .. Lq - 1, along the last axis.
        other: All other terms.
    """

    near: Any
    other: Any

    def parts(self) -> Strips:
        """What a block reads of each array: a tree of `blocks.Part`."""
        return Strips(
            apply(self.near, lambda a: "rows", lambda a: "distances", lambda a: "keys"),
            apply(self.other, lambda a: "rows", lambda a: "whole", lambda a: "keys"),
        )


jax.tree_util.register_dataclass(Strips, data_fields=["near", "other"], meta_fields=[])


def prepare(terms: Terms, positions: Positions) -> Strips:
    """Terms of one head, ready to be cut."""

    def is_near(table: Table | None) -> bool:
        return positions.query is None and table is not None and table.coordinates is None

    def lay(table: Table) -> Table:
        lowest, count = -positions.Lk, positions.Lq + positions.Lk
        return Table(laid_out(table.values.T, table.first, lowest, count), lowest)

    def near(products: Iterable[Product]) -> tuple[Product, ...]:
        chosen = (product for product in products if is_near(product.table))
        return tuple(replace(product, table=lay(product.table)) for product in chosen)

    def other(products: Iterable[Product]) -> tuple[Product, ...]:
        return tuple(product for product in products if not is_near(product.table))

    table = terms.value_table
    return Strips(
        Terms(
            terms.scale,
            query=near(terms.query),
            key=near(terms.key),
            bias=tuple(lay(table) for table in terms.bias if is_near(table)),
            value_table=lay(table) if table is not None and is_near(table) else None,
        ),
        replace(
            terms,
            query=other(terms.query),
            key=other(terms.key),
            bias=tuple(table for table in terms.bias if not is_near(table)),
            value_table=None if is_near(table) else table,
        ),
    )


def laid_out(
    by_row: Float[Array, "*e N"], first: int, lowest: int, count: int
) -> Float[Array, "*e count"]:
    """The last axis over the distances `lowest` .. `lowest + count - 1`: end rows are repeated."""
    N = by_row.shape[-1]
    before = min(max(first - lowest, 0), count)
    after = min(max(lowest + count - (first + N), 0), count)
    start = max(lowest - first, 0)
    ends = [(by_row[..., :1], before), (by_row[..., -1:], after)]
    left, right = (jnp.broadcast_to(end, (*end.shape[:-1], size)) for end, size in ends)
    return jnp.concatenate((left, by_row[..., start : start + count - before - after], right), -1)


def strip_scores(
    strips: Strips, local: Positions, positions: Positions
) -> Float[Array, "R K"] | None:
    """All terms of a block's scores but the content; None if there are none.

    Args:
        strips: What the block cut.
        local: Default positions of so many queries and keys.
        positions: Where the block's queries and keys stand.
    """
    near = apply(strips.near, lambda features: features, lambda values: values.T)
    near = _beginning(near, -local.Lk)
    other = strips.other
    parts = [
        position_scores(replace(near, key=()), local),
        position_scores(replace(other, key=(), pair_bias=None), positions),
        *(key_scores(product, local) for product in near.key),
        *(key_scores(product, positions.at(product.table.coordinates)) for product in other.key),
    ]
    if other.pair_bias is not None:
        parts.append(pair_scores(other.pair_bias, positions))
    found = [part for part in parts if part is not None]
    return sum(found[1:], found[0]) if found else None


def strip_values(
    weights: Float[Array, "R K"], strips: Strips, local: Positions, positions: Positions
) -> Float[Array, "R e"] | None:
    """sum_j weights[i, j] * row of j - i; None without a table of values."""
    if strips.near.value_table is not None:
        values = strips.near.value_table.values.T
        return by_distance.table_values(weights, values, -local.Lk, local)
    if strips.other.value_table is not None:
        table = strips.other.value_table
        return by_distance.table_values(weights, table.values, table.first, positions)
    return None


def key_scores(product: Product, positions: Positions) -> Float[Array, "R K"]:
    """scale * <features[j], row of j - i> for every pair of a block."""
    R, K = positions.Lq, positions.Lk
    tiles = -(-K // R)
    beyond = tiles * R - K
    features = jnp.pad(product.features, ((0, beyond), (0, 0))).reshape(tiles, R, -1)
    values, first = product.table.values, product.table.first
    if positions.query is None:
        # Tile t sees the rows tR + 1 .. tR + 2R of the table, backwards: one row per query's
        # distance to its first key, as `skew` reads them.
        rows = jnp.pad(values[1:], ((0, beyond + 1), (0, 0))).reshape(tiles + 1, R, -1)
        seen = jnp.concatenate((rows[:-1], rows[1:]), 1)[:, ::-1]
        products = jnp.einsum("tje,twe->tjw", features, seen)
        scores = jax.vmap(by_distance.skew)(products)
    else:
        keys = jnp.pad(positions.key, (0, beyond)).reshape(tiles, R)

        def tile(features_and_keys: tuple[Array, Array]) -> Array:
            features, key = features_and_keys
            at = replace(positions, key=key, Lk=R)
            return by_distance.key_scores(features, values, first, at).T

        scores = jax.lax.map(tile, (features, keys))
    return product.scale * scores.reshape(tiles * R, R)[:K].T


def pair_scores(pair: PairBias, positions: Positions) -> Float[Array, "R K"]:
    """A number for every pair of a block, a few rows at a time."""
    query, key = positions.arrays()
    groups = -(-positions.Lq // PAIR_ROWS)
    # The last position stands in for rows that do not exist: a function need not bear others.
    rows = jnp.pad(query, (0, groups * PAIR_ROWS - positions.Lq), mode="edge")

    @jax.checkpoint
    def some(query: Array) -> Array:
        return pair.function(pair.params, query, key)

    scores = jax.lax.map(some, rows.reshape(groups, PAIR_ROWS))
    return scores.reshape(groups * PAIR_ROWS, positions.Lk)[: positions.Lq]


def _beginning(terms: Terms, first: int) -> Terms:
    """Terms whose tables begin at another distance."""

    def moved(products: Iterable[Product]) -> tuple[Product, ...]:
        return tuple(replace(p, table=replace(p.table, first=first)) for p in products)

    return replace(
        terms,
        query=moved(terms.query),
        key=moved(terms.key),
        bias=tuple(replace(table, first=first) for table in terms.bias),
    )
