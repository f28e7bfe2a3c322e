"""The kernel that writes the scores down: serves every term, and is the one to read."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from relpos_jax.kernels.by_distance import bias_scores, key_scores, query_scores, table_values
from relpos_jax.kernels.counted import counted_scores
from relpos_jax.kernels.lifting import by_head
from relpos_jax.kernels.masks import masked_softmax, not_after
from relpos_jax.kernels.positions import Positions
from relpos_jax.kernels.terms import Decay, Terms

__all__ = ["decay_scores", "dense", "position_scores"]


def position_scores(terms: Terms, positions: Positions) -> Float[Array, "Lq Lk"] | None:
    """All terms of one head's scores but the content and what it counts; None if there are none."""
    parts = []
    for products, scores_of in ((terms.query, query_scores), (terms.key, key_scores)):
        for product in products:
            table = product.table
            at = positions.at(table.coordinates)
            scores = scores_of(product.features, table.values, table.first, at)
            parts.append(product.scale * scores)
    for table in terms.bias:
        parts.append(bias_scores(table.values, table.first, positions.at(table.coordinates)))
    if terms.pair_bias is not None:
        pair = terms.pair_bias
        parts.append(pair.function(pair.params, *positions.arrays()))
    if terms.decay is not None:
        parts.append(decay_scores(terms.decay, positions))
    return sum(parts[1:], parts[0]) if parts else None


def decay_scores(decay: Decay, positions: Positions) -> Float[Array, "Lq Lk"]:
    """The difference of two sums for every pair whose key is not after the query, else 0."""
    parts = zip(decay.query.T, decay.key.T, strict=True)
    first, *others = (query[:, None] - key[None, :] for query, key in parts)
    difference = sum(others, first)
    if positions.causal:
        return difference  # nobody reads the others
    return jnp.where(not_after(positions), difference, 0.0)


def dense(
    q: Float[Array, "B Lq H c"],
    k: Float[Array, "B Lk G c"],
    v: Float[Array, "B Lk G d"],
    terms: Terms,
    *,
    mask: Bool[Array, "..."] | None,
    positions: Positions,
    dropout: float,
    dropout_key: Array | None,
) -> Float[Array, "B Lq H d"]:
    """Attention with all scores [B, H, Lq, Lk] in memory.

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        terms: The scheme's terms.
        mask: Who may attend to whom, broadcastable to [B, H, Lq, Lk].
        positions: Where queries and keys stand.
        dropout: Probability of dropping a weight.
        dropout_key: Where dropped weights are drawn from; None drops nothing.

    Returns:
        The output.
    """
    (B, Lq, H, _), (Lk, G) = q.shape, k.shape[1:3]
    k, v = jnp.repeat(k, H // G, axis=2), jnp.repeat(v, H // G, axis=2)
    every_pair = (B, H, Lq, Lk)
    keep = None
    if dropout_key is not None and dropout > 0.0:
        keep = jax.random.bernoulli(dropout_key, 1.0 - dropout, every_pair)
    mask = None if mask is None else jnp.broadcast_to(mask, every_pair)
    terms, terms_by_row, terms_by_head = by_head(terms)

    def head(
        q: Float[Array, "Lq c"],
        k: Float[Array, "Lk c"],
        v: Float[Array, "Lk d"],
        terms: Terms,
        mask: Bool[Array, "Lq Lk"] | None,
        keep: Bool[Array, "Lq Lk"] | None,
        positions: Positions,
    ) -> Float[Array, "Lq d"]:
        content = terms.scale * (q @ k.T)
        added = position_scores(terms, positions)
        scores = content if added is None else content + added
        if terms.counted is not None:
            scores = scores + counted_scores(terms.counted, q, content, mask, positions)
        weights = masked_softmax(scores, mask)
        if keep is not None:
            weights = jnp.where(keep, weights / (1.0 - dropout), 0.0)
        out = weights @ v
        if terms.value_table is not None:
            table = terms.value_table
            out = out + table_values(weights, table.values, table.first, positions)
        return out

    heads = jax.vmap(head, in_axes=(1, 1, 1, terms_by_head, 0, 0, None), out_axes=1)
    rows = jax.vmap(heads, in_axes=(0, 0, 0, terms_by_row, 0, 0, 0))
    return rows(q, k, v, terms, mask, keep, positions)
