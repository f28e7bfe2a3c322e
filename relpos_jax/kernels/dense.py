"""The kernel that writes the scores down: serves every term, and is the one to read."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from relpos_jax.kernels.by_distance import bias_scores, table_scores, table_values
from relpos_jax.kernels.masks import masked_softmax
from relpos_jax.kernels.positions import Positions
from relpos_jax.kernels.terms import Terms

__all__ = ["dense", "position_scores"]


def position_scores(terms: Terms, positions: Positions) -> Float[Array, "Lq Lk"] | None:
    """All terms of one head's scores but the content; None if there are none."""
    parts = []
    if terms.query_table is not None and terms.query_features is not None:
        table = terms.query_table
        products = table_scores(terms.query_features, table.values, table.first, positions)
        parts.append(terms.query_scale * products)
    if terms.bias is not None:
        parts.append(bias_scores(terms.bias.values, terms.bias.first, positions))
    return sum(parts[1:], parts[0]) if parts else None


def dense(
    q: Float[Array, "B Lq H d"],
    k: Float[Array, "B Lk G d"],
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
    # Heads first, as the tables have them, and every table for every head.
    features = terms.query_features
    features = None if features is None else features.swapaxes(1, 2)
    tables = {name: jnp.broadcast_to(t, (H, *t.shape[1:])) for name, t in terms.tables.items()}

    def head(
        q: Float[Array, "Lq d"],
        k: Float[Array, "Lk d"],
        v: Float[Array, "Lk d"],
        features: Float[Array, "Lq e"] | None,
        tables: dict[str, Array],
        mask: Bool[Array, "Lq Lk"] | None,
        keep: Bool[Array, "Lq Lk"] | None,
        positions: Positions,
    ) -> Float[Array, "Lq d"]:
        own = terms.one_head(features, tables)
        scores = own.scale * (q @ k.T)
        added = position_scores(own, positions)
        weights = masked_softmax(scores if added is None else scores + added, mask)
        if keep is not None:
            weights = jnp.where(keep, weights / (1.0 - dropout), 0.0)
        out = weights @ v
        if own.value_table is not None:
            table = own.value_table
            out = out + table_values(weights, table.values, table.first, positions)
        return out

    heads = jax.vmap(head, in_axes=(1, 1, 1, 0, 0, 0, 0, None), out_axes=1)
    rows = jax.vmap(heads, in_axes=(0, 0, 0, 0, None, 0, 0, 0))
    return rows(q, k, v, features, tables, mask, keep, positions)
