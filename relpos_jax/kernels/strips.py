"""The position part of a block of rows, for one head.

By default positions, a table is laid out over all distances of the call once. A block of R rows
and K keys reads R + K + 1 of them: column c belongs to row r and key j with c = j + R - r, so that
products [R, R + K + 1] are pairs [R, K] if each row is read one column further left. That is
another reading of the same numbers in a row, with one column less: `skewed`. The way back writes
pairs into a scratch of that shape whose other entries are zero, and stay so: `unskewed`.

A bias needs no product: the numbers of the first block, further right or left, are those of all.
Features of keys would meet every distance for every key, [K, R + K]: they go in tiles of R keys,
of which each sees only 2R distances.

What is no function of the distance of default positions is asked for by position.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from relpos_jax.kernels import by_distance
from relpos_jax.kernels.blocks import Plan, Span
from relpos_jax.kernels.dense import position_scores
from relpos_jax.kernels.lifting import apply
from relpos_jax.kernels.positions import Positions
from relpos_jax.kernels.terms import PairBias, Product, Table, Terms

__all__ = [
    "Band",
    "Strips",
    "key_scores",
    "laid_out",
    "other_scores",
    "pair_scores",
    "prepare",
    "query_scores",
    "scratch",
    "skewed",
    "unskewed",
]

#: Rows whose pairs go through a function at a time: it may hold many numbers for each of them.
PAIR_ROWS = 8


@dataclass(frozen=True)
class Band:
    """Products of queries with near tables of few rows, constant beyond the columns of a span.

    Attributes:
        products: As near products.
        ends: The tables' first and last row, each [e, 2].
        span: The columns outside of which every table is constant.
    """

    products: Any
    ends: Any
    span: Span


@dataclass(frozen=True)
class Strips:
    """The terms of one head as blocks cut them.

    Attributes:
        near: Products and values by the distance of default positions. The values of their tables
            are laid out over the distances -Lk .. Lq, along the last axis.
        bias: All biases by the distance of default positions [R, Lk + Lq - R]: a block's are the
            columns from Lq - R less its first row on. None if there are none.
        band: Near products of queries whose tables have few rows; None if there are none.
        other: All other terms.
    """

    near: Any
    bias: Any
    band: Any
    other: Any

    def parts(self) -> Strips:
        """What a block reads of each array: a tree of `blocks.Part`."""
        return Strips(
            apply(self.near, lambda a: "rows", lambda a: "distances", lambda a: "keys"),
            None if self.bias is None else "columns",
            self._parts_of_band(),
            apply(self.other, lambda a: "rows", lambda a: "whole", lambda a: "keys"),
        )

    def _parts_of_band(self) -> Band | None:
        if self.band is None:
            return None
        span = self.band.span
        terms = Terms(1.0, query=self.band.products)
        products = apply(terms, lambda a: "rows", lambda a: span).query
        return Band(products, tuple("whole" for _ in products), span)


jax.tree_util.register_dataclass(
    Strips, data_fields=["near", "bias", "band", "other"], meta_fields=[]
)
jax.tree_util.register_dataclass(Band, data_fields=["products", "ends"], meta_fields=["span"])


def prepare(terms: Terms, positions: Positions, plan: Plan) -> Strips:
    """Terms of one head, ready to be cut."""
    lowest, count = -plan.Lk, plan.Lq + plan.Lk + 1

    def is_near(table: Table | None) -> bool:
        return positions.query is None and table is not None and table.coordinates is None

    def lay(table: Table) -> Table:
        return Table(laid_out(table.values.T, table.first, lowest, count), lowest)

    def near(products: Iterable[Product]) -> tuple[Product, ...]:
        chosen = (product for product in products if is_near(product.table))
        return tuple(replace(product, table=lay(product.table)) for product in chosen)

    def other(products: Iterable[Product]) -> tuple[Product, ...]:
        return tuple(product for product in products if not is_near(product.table))

    table = terms.value_table
    query = near(terms.query)
    narrow = _narrow([p.table for p in terms.query if is_near(p.table)], plan)
    band = None
    if narrow is not None:
        ends = tuple(p.table.values[:, jnp.array([0, -1])] for p in query)
        query, band = (), Band(query, ends, narrow)
    biases = [lay(table).values for table in terms.bias if is_near(table)]
    return Strips(
        Terms(
            terms.scale,
            query=query,
            key=near(terms.key),
            value_table=lay(table) if table is not None and is_near(table) else None,
        ),
        _biases(sum(biases[1:], biases[0]), plan) if biases else None,
        band,
        replace(
            terms,
            query=other(terms.query),
            key=other(terms.key),
            bias=tuple(table for table in terms.bias if not is_near(table)),
            value_table=None if is_near(table) else table,
        ),
    )


def _narrow(tables: list[Table], plan: Plan) -> Span | None:
    """The columns outside of which tables are constant; None where they are not few."""
    if not tables:
        return None
    first = min(table.first for table in tables)
    width = max(table.first + len(table.values) for table in tables) - first + plan.rows
    fewest = min(keys for _, keys in plan.stretches)
    return Span(first, width) if 2 * width <= fewest else None


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


def _biases(values: Float[Array, " W"], plan: Plan) -> Float[Array, "R C"]:
    """The biases of row r and of the key in column c, which is c + R - r along the values."""
    rows = jnp.broadcast_to(values, (plan.rows, len(values)))
    return skewed(rows, len(values) - 1 - plan.rows)


def skewed(products: Float[Array, "R W"], keys: int) -> Float[Array, "R K"]:
    """From distances to pairs: row r begins at column R - r."""
    R, W = products.shape
    return products.reshape(-1)[R:].reshape(R, W - 1)[:, :keys]


def unskewed(
    scratch: Float[Array, "R_and_1 R_and_K"], pairs: Float[Array, "R K"]
) -> tuple[Float[Array, "R_and_1 R_and_K"], Float[Array, "R W"]]:
    """From pairs to distances, and the scratch that was written to."""
    R = len(pairs)
    W = scratch.shape[1] + 1
    scratch = lax.dynamic_update_slice(scratch, pairs, (0, R))
    return scratch, scratch.reshape(-1)[: R * W].reshape(R, W)


def scratch(rows: int, keys: int, dtype: jnp.dtype) -> Float[Array, "R_and_1 R_and_K"]:
    """Zeros for `unskewed`."""
    return jnp.zeros((rows + 1, rows + keys), dtype)


def query_scores(
    features: Float[Array, "R e"], values: Float[Array, "e W"], keys: int
) -> Float[Array, "R K"]:
    """<features[i], row of j - i> for every pair of a block, of values that it cut."""
    return skewed(features @ values, keys)


def other_scores(
    strips: Strips, local: Positions, positions: Positions
) -> Float[Array, "R K"] | None:
    """A block's scores but the content and near products of queries; None if there are none.

    Args:
        strips: What the block cut.
        local: Default positions of so many queries and keys.
        positions: Where the block's queries and keys stand.
    """
    near, other = strips.near, strips.other
    parts = [
        position_scores(replace(other, key=(), pair_bias=None), positions),
        *(key_scores(_turned(product, -local.Lk), local) for product in near.key),
        *(key_scores(product, positions.at(product.table.coordinates)) for product in other.key),
    ]
    if strips.bias is not None:
        parts.append(strips.bias)
    if other.pair_bias is not None:
        parts.append(pair_scores(other.pair_bias, positions))
    found = [part for part in parts if part is not None]
    return sum(found[1:], found[0]) if found else None


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
        rows = jnp.pad(values[1:], ((0, beyond), (0, 0))).reshape(tiles + 1, R, -1)
        seen = jnp.concatenate((rows[:-1], rows[1:]), 1)[:, ::-1]
        products = jnp.einsum("tje,twe->tjw", features, seen)
        scores = jax.vmap(by_distance.skew)(products)
    else:
        keys = jnp.pad(positions.key, (0, beyond)).reshape(tiles, R)

        def tile(features_and_keys: tuple[Array, Array]) -> Array:
            features, key = features_and_keys
            at = replace(positions, key=key, Lk=R)
            return by_distance.key_scores(features, values, first, at).T

        scores = lax.map(tile, (features, keys))
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

    scores = lax.map(some, rows.reshape(groups, PAIR_ROWS))
    return scores.reshape(groups * PAIR_ROWS, positions.Lk)[: positions.Lq]


def _turned(product: Product, first: int) -> Product:
    """A near product with a table as other functions read it."""
    return replace(product, table=Table(product.table.values.T, first))
