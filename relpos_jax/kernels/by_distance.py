"""From tables by distance to pairs (i, j) and back, for one head; `jax.vmap` lifts them.

No array [Lq, Lk, e] is ever made: features meet the table's rows first, and the products [Lq, N]
are then laid out over the pairs. For the default positions that needs no index of shape (Lq, Lk),
which XLA would fold into the program: column c of [Lq, Lq + Lk] belongs to distance c - Lk, and row
i reads Lk columns from Lq - i on, which is a reshape with one column less. Column 0 is never read,
so that whole rows can be dropped or added on the way: every size is one whatever the lengths, and
`jax.export`, which knows them by letter only, can tell.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from relpos_jax.kernels.positions import Positions

__all__ = [
    "bias_scores",
    "expand",
    "key_scores",
    "query_scores",
    "rows",
    "skew",
    "table_values",
    "unskew",
]


def query_scores(
    features: Float[Array, "Lq e"], values: Float[Array, "N e"], first: int, positions: Positions
) -> Float[Array, "Lq Lk"]:
    """<features[i], row of j - i> for every pair."""
    products = features @ values.T
    if positions.query is None:
        return skew(expand(products, first, -positions.Lk, positions.Lq + positions.Lk))
    index = rows(positions, first, len(values))
    return jnp.take_along_axis(products, index, axis=-1, mode="clip")


def key_scores(
    features: Float[Array, "Lk e"], values: Float[Array, "N e"], first: int, positions: Positions
) -> Float[Array, "Lq Lk"]:
    """<features[j], row of j - i> for every pair."""
    Lq, Lk = positions.Lq, positions.Lk
    if positions.query is None:
        # Keys by queries, at the distances i - j: the rows backwards.
        products = features @ values[::-1].T
        return skew(expand(products, 1 - first - len(values), -Lq, Lq + Lk)).T
    index = rows(positions, first, len(values))
    return jnp.take_along_axis((features @ values.T).T, index, axis=0, mode="clip")


def bias_scores(
    values: Float[Array, " N"], first: int, positions: Positions
) -> Float[Array, "Lq Lk"]:
    """The number of distance j - i for every pair."""
    Lq, Lk = positions.Lq, positions.Lk
    if positions.query is None:
        by_distance = expand(values[None], first, -Lk, Lq + Lk)
        return skew(jnp.broadcast_to(by_distance, (Lq, Lq + Lk)))
    return jnp.take(values, rows(positions, first, len(values)), mode="clip")


def table_values(
    weights: Float[Array, "Lq Lk"], values: Float[Array, "N e"], first: int, positions: Positions
) -> Float[Array, "Lq e"]:
    """sum_j weights[i, j] * row of j - i."""
    if positions.query is None:
        count = positions.Lq + positions.Lk
        return unskew(weights) @ expand(values.T, first, -positions.Lk, count).T
    index = rows(positions, first, len(values))
    queries = jnp.arange(positions.Lq)[:, None]
    by_row = jnp.zeros((positions.Lq, len(values)), weights.dtype).at[queries, index].add(weights)
    return by_row @ values


def expand(
    by_row: Float[Array, "rows N"], first: int, lowest: int, count: int
) -> Float[Array, "rows count"]:
    """The last axis over the distances `lowest` .. `lowest + count - 1`: end rows are repeated."""
    distance = jnp.arange(count) + lowest
    index = jnp.clip(distance - first, 0, by_row.shape[-1] - 1)
    return jnp.take(by_row, index, axis=-1, mode="clip")


def skew(by_distance: Float[Array, "Lq W"]) -> Float[Array, "Lq Lk"]:
    """From [Lq, Lq + Lk] by distance to pairs [Lq, Lk]."""
    Lq, W = by_distance.shape
    read = by_distance.reshape(W, Lq)[1:]
    return read.reshape(Lq, W - 1)[:, : W - Lq]


def unskew(pairs: Float[Array, "Lq Lk"]) -> Float[Array, "Lq W"]:
    """From pairs [Lq, Lk] to [Lq, Lq + Lk] by distance: the transpose of `skew`."""
    Lq, Lk = pairs.shape
    W = Lq + Lk
    read = jnp.pad(pairs, ((0, 0), (0, Lq - 1))).reshape(W - 1, Lq)
    return jnp.pad(read, ((1, 0), (0, 0))).reshape(Lq, W)


def rows(positions: Positions, first: int, N: int) -> Int[Array, "Lq Lk"]:
    """The table row of every pair at explicit positions of one sequence."""
    assert positions.query is not None
    assert positions.key is not None
    distance = positions.key[None, :] - positions.query[:, None]
    return jnp.clip(distance - first, 0, N - 1)
