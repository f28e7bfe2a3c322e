"""What every scheme lowers to, and all that a kernel knows of it.

    score[b,h,i,j] = scale * <q[b,i,h], k[b,j,h]>
                   + query_scale * <query_features[b,i,h], query_table[h, j-i]>
                   + bias[h, j-i]
    out[b,i,h]     = sum_j softmax(score)[i,j] * (v[b,j,h] + value_table[h, j-i])
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
from jaxtyping import Array, Float

__all__ = ["Lowered", "Table", "Terms"]


@functools.partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=["first"])
@dataclass(frozen=True)
class Table:
    """A function of distance: explicit rows over a range, constant beyond both of its ends.

    Attributes:
        values: One row per distance from `first` on: vectors [1 or H, N, e] or numbers [1 or H, N];
            for one head [N, e] or [N].
        first: The distance j - i of row 0.
    """

    values: Array
    first: int


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["query_features", "query_table", "bias", "value_table"],
    meta_fields=["scale", "query_scale"],
)
@dataclass(frozen=True)
class Terms:
    """The terms of one attention call; None is a term that is not there.

    Attributes:
        scale: The factor on <q, k>.
        query_features: What is multiplied with `query_table`, [B, Lq, H, e]; for one head [Lq, e].
        query_table: A vector per distance.
        query_scale: The factor on their product.
        bias: A number per distance, added to the scores.
        value_table: A vector per distance, added to the values.
    """

    scale: float
    query_features: Array | None = None
    query_table: Table | None = None
    query_scale: float = 1.0
    bias: Table | None = None
    value_table: Table | None = None


@dataclass(frozen=True)
class Lowered:
    """A scheme applied to one call: queries and keys, rotated if it rotates, and its terms."""

    q: Float[Array, "B Lq H d"]
    k: Float[Array, "B Lk G d"]
    terms: Terms
