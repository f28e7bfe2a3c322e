"""From tables by distance to pairs (i, j) and back, for one head; leading axes broadcast.

No tensor [Lq, Lk, e] is ever made: features meet the table's rows first, and the products [Lq, N]
are then laid out over the pairs. For the default positions that is two views and no gather: column
c of [Lq, Lq + Lk] belongs to distance c - Lk, and row i reads Lk columns from Lq - i on, which is a
reshape with one column less. Column 0 is never read.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from relpos_torch.kernels.positions import Positions

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
    features: Float[Tensor, "*B Lq e"],
    values: Float[Tensor, "*H N e"],
    first: int,
    positions: Positions,
) -> Float[Tensor, "*B Lq Lk"]:
    """<features[i], row of j - i> for every pair."""
    products = features @ values.mT
    if positions.query is None:
        return skew(expand(products, first, -positions.Lk, positions.Lq + positions.Lk))
    index = rows(positions, first, values.shape[-2], features.ndim)
    return products.gather(-1, index.expand(*products.shape[:-1], -1))


def key_scores(
    features: Float[Tensor, "*B Lk e"],
    values: Float[Tensor, "*H N e"],
    first: int,
    positions: Positions,
) -> Float[Tensor, "*B Lq Lk"]:
    """<features[j], row of j - i> for every pair."""
    products = features @ values.mT
    if positions.query is None:
        # Keys by queries, at the distances i - j: the rows backwards.
        last, count = first + values.shape[-2] - 1, positions.Lq + positions.Lk
        return skew(expand(products.flip(-1), -last, -positions.Lq, count)).mT
    index = rows(positions, first, values.shape[-2], features.ndim)
    return products.mT.gather(-2, index.expand(*products.shape[:-2], -1, -1))


def bias_scores(
    values: Float[Tensor, "*H N"], first: int, positions: Positions, rank: int
) -> Float[Tensor, "*B Lq Lk"]:
    """The number of distance j - i for every pair, as a tensor of `rank` axes."""
    Lq, Lk = positions.Lq, positions.Lk
    if positions.query is None:
        by_distance = expand(values, first, -Lk, Lq + Lk)
        return skew(by_distance.unsqueeze(-2).expand(*values.shape[:-1], Lq, Lq + Lk))
    index = rows(positions, first, values.shape[-1], rank)
    numbers = values.unsqueeze(-2).expand(*index.shape[: rank - 3], *values.shape[:-1], Lq, -1)
    return numbers.gather(-1, index.expand(*numbers.shape[:-1], -1))


def table_values(
    weights: Float[Tensor, "*B Lq Lk"],
    values: Float[Tensor, "*H N e"],
    first: int,
    positions: Positions,
) -> Float[Tensor, "*B Lq e"]:
    """sum_j weights[i, j] * row of j - i."""
    if positions.query is None:
        count = positions.Lq + positions.Lk
        return unskew(weights) @ expand(values.mT, first, -positions.Lk, count).mT
    N = values.shape[-2]
    index = rows(positions, first, N, weights.ndim).expand(weights.shape)
    by_row = weights.new_zeros(*weights.shape[:-1], N).scatter_add(-1, index, weights)
    return by_row @ values


def expand(
    by_row: Float[Tensor, "*B N"], first: int, lowest: int, count: int
) -> Float[Tensor, "*B count"]:
    """The last axis over the distances `lowest` .. `lowest + count - 1`: end rows are repeated."""
    distance = torch.arange(count, device=by_row.device) + lowest
    return by_row.index_select(-1, (distance - first).clamp(0, by_row.shape[-1] - 1))


def skew(by_distance: Float[Tensor, "*B Lq W"]) -> Float[Tensor, "*B Lq Lk"]:
    """From [Lq, Lq + Lk] by distance to pairs [Lq, Lk]."""
    *batch, Lq, W = by_distance.shape
    read = by_distance.reshape(*batch, Lq * W)[..., Lq:]
    return read.reshape(*batch, Lq, W - 1)[..., : W - Lq]


def unskew(pairs: Float[Tensor, "*B Lq Lk"]) -> Float[Tensor, "*B Lq W"]:
    """From pairs [Lq, Lk] to [Lq, Lq + Lk] by distance: the transpose of `skew`."""
    *batch, Lq, Lk = pairs.shape
    W = Lq + Lk
    read = torch.nn.functional.pad(pairs, (0, Lq - 1)).reshape(*batch, Lq * (W - 1))
    return torch.nn.functional.pad(read, (Lq, 0)).reshape(*batch, Lq, W)


def rows(positions: Positions, first: int, N: int, rank: int) -> Int[Tensor, "*B Lq Lk"]:
    """The table row of every pair at explicit positions, as a tensor of `rank` axes."""
    assert positions.query is not None
    assert positions.key is not None
    distance = positions.key.unsqueeze(-2) - positions.query.unsqueeze(-1)
    index = (distance - first).clamp(0, N - 1)
    # [B, Lq, Lk] belongs to every head: the axes between batch and queries are broadcast.
    batch, pairs = index.shape[:-2], index.shape[-2:]
    return index.reshape(*batch, *(1,) * (rank - index.ndim), *pairs)
