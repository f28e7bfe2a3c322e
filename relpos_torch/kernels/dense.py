"""The kernel that writes the scores down: serves every term, and is the one to read."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from relpos_torch.kernels.by_distance import (
    bias_scores,
    key_scores,
    query_scores,
    table_values,
)
from relpos_torch.kernels.counted import counted_scores
from relpos_torch.kernels.masks import masked_softmax, not_after
from relpos_torch.kernels.positions import Positions
from relpos_torch.kernels.terms import Decay, Terms

__all__ = ["decay_scores", "dense", "position_scores"]


def position_scores(
    terms: Terms, positions: Positions, device: torch.device
) -> Float[Tensor, "*B Lq Lk"] | None:
    """All terms of the scores but the content and what it counts; None if there are none."""
    parts = []
    for products, scores_of in ((terms.query, query_scores), (terms.key, key_scores)):
        for product in products:
            table = product.table
            at = positions.at(table.coordinates, device)
            scores = scores_of(product.features, table.values, table.first, at)
            parts.append(product.scale * scores)
    for table in terms.bias:
        at = positions.at(table.coordinates, device)
        parts.append(bias_scores(table.values, table.first, at, rank=4))
    if terms.pair_bias is not None:
        pair = terms.pair_bias
        parts.append(pair.function(pair.params, *positions.tensors(device)))
    if terms.decay is not None:
        parts.append(decay_scores(terms.decay, positions, device))
    return sum(parts[1:], parts[0]) if parts else None


def decay_scores(
    decay: Decay, positions: Positions, device: torch.device
) -> Float[Tensor, "B H Lq Lk"]:
    """The difference of two sums for every pair whose key is not after the query, else 0."""
    parts = zip(decay.query.unbind(-1), decay.key.unbind(-1), strict=True)
    first, *others = (query.unsqueeze(-1) - key.unsqueeze(-2) for query, key in parts)
    difference = sum(others, first)
    if positions.causal:
        return difference  # nobody reads the others
    return difference.masked_fill(~not_after(positions, device), 0.0)


def dense(
    q: Float[Tensor, "B H Lq c"],
    k: Float[Tensor, "B G Lk c"],
    v: Float[Tensor, "B G Lk d"],
    terms: Terms,
    *,
    mask: Bool[Tensor, "..."] | None,
    positions: Positions,
    dropout: float,
) -> Float[Tensor, "B H Lq d"]:
    """Attention with all scores [B, H, Lq, Lk] in memory.

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        terms: The scheme's terms.
        mask: Who may attend to whom, broadcastable to [B, H, Lq, Lk].
        positions: Where queries and keys stand.
        dropout: Probability of dropping a weight, by torch's global generator.

    Returns:
        The output.
    """
    per_group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(per_group, 1), v.repeat_interleave(per_group, 1)
    content = terms.scale * (q @ k.mT)
    added = position_scores(terms, positions, q.device)
    scores = content if added is None else content + added
    if terms.counted is not None:
        scores = scores + counted_scores(terms.counted, q, content, mask, positions)
    weights = masked_softmax(scores, mask)
    weights = torch.nn.functional.dropout(weights, dropout)
    out = weights @ v
    if terms.value_table is not None:
        table = terms.value_table
        out = out + table_values(weights, table.values, table.first, positions)
    return out
