"""What every scheme lowers to, and all that a kernel knows of it.

Tables are functions of distance alone:

    score[b,h,i,j] = scale * <q[b,i,h], k[b,j,h]>
                   + sum of query products  scale * <features[b,i,h], table[h, j-i]>
                   + sum of key products    scale * <features[b,j,h], table[h, j-i]>
                   + sum of biases          table[h, j-i]
                   + pair_bias[h](position of i, position of j)
                   + decay.query[b,i,h] - decay.key[b,j,h]          if j is not after i
                   + counted.scale * <q[b,i,h], counted[h] at the place of j>
    out[b,i,h]     = sum_j softmax(score)[i,j] * (v[b,j,h] + value_table[h, j-i])

Every record is a pytree whose leaves are its arrays, so that `jax.vmap` lifts a kernel that is
written for one head.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
from jaxtyping import Array, Float

__all__ = ["Counted", "Decay", "Lowered", "PairBias", "Product", "Table", "Terms"]

R = TypeVar("R")


def _record(*arrays: str, static: tuple[str, ...] = ()) -> Callable[[type[R]], type[R]]:
    return functools.partial(
        jax.tree_util.register_dataclass, data_fields=list(arrays), meta_fields=list(static)
    )


# Any, below: JAX also rebuilds the records around placeholders that are no arrays.


@_record("values", static=("first", "coordinates"))
@dataclass(frozen=True)
class Table:
    """A function of distance: explicit rows over a range, constant beyond both of its ends.

    Attributes:
        values: One row per distance from `first` on: vectors [1 or H, N, e] or numbers [1 or H, N];
            for one head [N, e] or [N].
        first: The distance j - i of row 0.
        coordinates: What the positions of queries and of keys become before they are subtracted,
            such as the rows of a grid; None leaves them as they are.
    """

    values: Any
    first: int
    coordinates: tuple[Callable[[Array], Array], Callable[[Array], Array]] | None = None


@_record("features", "table", static=("scale",))
@dataclass(frozen=True)
class Product:
    """Features of queries, or of keys, times a vector per distance.

    Attributes:
        features: [B, L, H, e]; for one head [L, e].
        table: A vector per distance.
        scale: The factor on their product.
    """

    features: Any
    table: Table
    scale: float = 1.0


@_record("params", static=("function",))
@dataclass(frozen=True)
class PairBias:
    """A number per pair of positions that is no function of their distance.

    Attributes:
        function: For one head: from `params` without their first axis, query positions [Lq] and key
            positions [Lk] to scores [Lq, Lk].
        params: What the function reads besides, each [1 or H, ...].
    """

    function: Callable[[tuple[Array, ...], Array, Array], Array]
    params: tuple[Any, ...]


@_record("query", "key")
@dataclass(frozen=True)
class Decay:
    """A difference of two sums, each per token: query[b,i,h] - key[b,j,h], 0 for keys after i.

    Sums of many tokens are long numbers of which the difference may need the last digits: they come
    in parts, and each part is subtracted on its own before the differences are added.

    Attributes:
        query: [B, Lq, H, parts]; for one head [Lq, parts].
        key: [B, Lk, H, parts]; for one head [Lk, parts].
    """

    query: Any
    key: Any


@_record("values", static=("scale",))
@dataclass(frozen=True)
class Counted:
    """Queries times a vector per place, where the content counts the places of a query's keys.

    `kernels.counted` has the formula. A place depends on all scores of its query, so that only the
    kernel `dense` serves this term.

    Attributes:
        values: A vector per whole place [1 or H, N, d]; for one head [N, d], N >= 2.
        scale: The factor on their product.
    """

    values: Any
    scale: float = 1.0


@_record("query", "key", "bias", "pair_bias", "decay", "counted", "value_table", static=("scale",))
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

    q: Float[Array, "B Lq H c"]
    k: Float[Array, "B Lk G c"]
    terms: Terms
