"""What every scheme lowers to, and all that a kernel knows of it.

Every table is a function of distance alone:

    score[b,h,i,j] = scale * <q[b,i,h], k[b,j,h]>
                   + query_scale * <query_features[b,i,h], query_table[h, j-i]>
                   + bias[h, j-i]
    out[b,i,h]     = sum_j softmax(score)[i,j] * (v[b,j,h] + value_table[h, j-i])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jaxtyping import Array, Float

__all__ = ["Lowered", "Table", "Terms"]


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

    @property
    def tables(self) -> dict[str, Array]:
        """The values of the tables that are there, by field."""
        named = {name: getattr(self, name) for name in ("query_table", "bias", "value_table")}
        return {name: table.values for name, table in named.items() if table is not None}

    def one_head(self, features: Array | None, tables: Mapping[str, Array]) -> Terms:
        """The terms with one head's features and one head's values in the tables."""
        own = {name: replace(getattr(self, name), values=tables[name]) for name in tables}
        return replace(self, query_features=features, **own)


@dataclass(frozen=True)
class Lowered:
    """A scheme applied to one call: queries and keys, rotated if it rotates, and its terms."""

    q: Float[Array, "B Lq H d"]
    k: Float[Array, "B Lk G d"]
    terms: Terms
