"""What every scheme lowers to, and all that a kernel knows of it.

Every table is a function of distance alone:

    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]>
                   + query_scale * <query_features[b,h,i], query_table[h, j-i]>
                   + bias[h, j-i]
    out[b,h,i]     = sum_j softmax(score)[i,j] * (v[b,h,j] + value_table[h, j-i])
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

__all__ = ["Lowered", "Table", "Terms"]


@dataclass(frozen=True)
class Table:
    """A function of distance: explicit rows over a range, constant beyond both of its ends.

    Attributes:
        values: One row per distance from `first` on: vectors [1 or H, N, e] or numbers [1 or H, N].
        first: The distance j - i of row 0.
    """

    values: Float[Tensor, "heads N *e"]
    first: int


@dataclass(frozen=True)
class Terms:
    """The terms of one attention call; None is a term that is not there.

    Attributes:
        scale: The factor on <q, k>.
        query_features: What is multiplied with `query_table`, [B, H, Lq, e].
        query_table: A vector per distance.
        query_scale: The factor on their product.
        bias: A number per distance, added to the scores.
        value_table: A vector per distance, added to the values.
    """

    scale: float
    query_features: Float[Tensor, "B H Lq e"] | None = None
    query_table: Table | None = None
    query_scale: float = 1.0
    bias: Table | None = None
    value_table: Table | None = None


@dataclass(frozen=True)
class Lowered:
    """A scheme applied to one call: queries and keys, rotated if it rotates, and its terms."""

    q: Float[Tensor, "B H Lq d"]
    k: Float[Tensor, "B G Lk d"]
    terms: Terms
