"""What every scheme lowers to, and all that a kernel knows of it.

Tables are functions of distance alone:

    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]>
                   + sum of query products  scale * <features[b,h,i], table[h, j-i]>
                   + sum of key products    scale * <features[b,h,j], table[h, j-i]>
                   + sum of biases          table[h, j-i]
                   + pair_bias[h](position of i, position of j)
                   + decay.query[b,h,i] - decay.key[b,h,j]          if j is not after i
                   + counted.scale * <q[b,h,i], counted[h] at the place of j>
    out[b,h,i]     = sum_j softmax(score)[i,j] * (v[b,h,j] + value_table[h, j-i])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

__all__ = ["Counted", "Decay", "Lowered", "PairBias", "Product", "Table", "Terms"]


@dataclass(frozen=True)
class Table:
    """A function of distance: explicit rows over a range, constant beyond both of its ends.

    Attributes:
        values: One row per distance from `first` on: vectors [1 or H, N, e] or numbers [1 or H, N].
        first: The distance j - i of row 0.
        coordinates: What the positions of queries and of keys become before they are subtracted,
            such as the rows of a grid; None leaves them as they are.
    """

    values: Float[Tensor, "heads N *e"]
    first: int
    coordinates: tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]] | None = None


@dataclass(frozen=True)
class Product:
    """Features of queries, or of keys, times a vector per distance.

    Attributes:
        features: [B, H, L, e].
        table: A vector per distance.
        scale: The factor on their product.
    """

    features: Float[Tensor, "B H L e"]
    table: Table
    scale: float = 1.0


@dataclass(frozen=True)
class PairBias:
    """A number per pair of positions that is no function of their distance.

    Attributes:
        function: From `params`, query positions [Lq] or [B, Lq] and key positions [Lk] or [B, Lk]
            to scores that broadcast to [B, H, Lq, Lk].
        params: What the function reads besides, so that a kernel can take gradients of it.
    """

    function: Callable[[tuple[Tensor, ...], Tensor, Tensor], Tensor]
    params: tuple[Tensor, ...]


@dataclass(frozen=True)
class Decay:
    """A difference of two sums, each per token: query[b,h,i] - key[b,h,j], 0 for keys after i.

    Sums of many tokens are long numbers of which the difference may need the last digits: they come
    in parts, and each part is subtracted on its own before the differences are added.

    Attributes:
        query: [B, H, Lq, parts].
        key: [B, H, Lk, parts].
    """

    query: Float[Tensor, "B H Lq parts"]
    key: Float[Tensor, "B H Lk parts"]


@dataclass(frozen=True)
class Counted:
    """Queries times a vector per place, where the content counts the places of a query's keys.

    `kernels.counted` has the formula. A place depends on all scores of its query, so that only the
    kernel `dense` serves this term.

    Attributes:
        values: A vector per whole place [1 or H, N, d], N >= 2.
        scale: The factor on their product.
    """

    values: Float[Tensor, "heads N d"]
    scale: float = 1.0


@dataclass(frozen=True)
class Terms:
    """The terms of one attention call.

    Attributes:
        scale: The factor on <q, k>.
        query: Products with features of queries.
        key: Products with features of keys.
        bias: Numbers per distance, added to the scores.
        pair_bias: A number per pair of positions, added to the scores.
        decay: A difference of sums per token, added to the scores.
        counted: A product per pair by the place that the content counts, added to the scores.
        value_table: A vector per distance, added to the values.
    """

    scale: float
    query: tuple[Product, ...] = ()
    key: tuple[Product, ...] = ()
    bias: tuple[Table, ...] = ()
    pair_bias: PairBias | None = None
    decay: Decay | None = None
    counted: Counted | None = None
    value_table: Table | None = None


@dataclass(frozen=True)
class Lowered:
    """A scheme applied to one call: queries and keys, rotated if it rotates, and its terms.

    Queries and keys may have become wider than the values.
    """

    q: Float[Tensor, "B H Lq c"]
    k: Float[Tensor, "B G Lk c"]
    terms: Terms
