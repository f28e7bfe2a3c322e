"""The kernel that writes the scores down: serves every term, and is the one to read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from relpos_jax.kernels.by_distance import bias_scores, table_scores, table_values
from relpos_jax.kernels.masks import masked_softmax
from relpos_jax.kernels.positions import Positions
from relpos_jax.kernels.terms import Table, Terms

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
        keep = jax.random.bernoulli(dropout_key, 1.0 - dropout, every_pair) / (1.0 - dropout)
    mask = None if mask is None else jnp.broadcast_to(mask, every_pair)
    if terms.query_features is not None:
        terms = dataclasses.replace(terms, query_features=terms.query_features.swapaxes(1, 2))

    def head(
        q: Float[Array, "Lq d"],
        k: Float[Array, "Lk d"],
        v: Float[Array, "Lk d"],
        terms: Terms,
        mask: Bool[Array, "Lq Lk"] | None,
        keep: Float[Array, "Lq Lk"] | None,
        positions: Positions,
    ) -> Float[Array, "Lq d"]:
        scores = terms.scale * (q @ k.T)
        added = position_scores(terms, positions)
        weights = masked_softmax(scores if added is None else scores + added, mask)
        weights = weights if keep is None else weights * keep.astype(weights.dtype)
        out = weights @ v
        if terms.value_table is not None:
            table = terms.value_table
            out = out + table_values(weights, table.values, table.first, positions)
        return out

    shared_by_rows = _axes(terms, features=0, tables=None)
    own_per_head = _axes(_per_head(terms, H), features=0, tables=0)
    heads = jax.vmap(head, in_axes=(1, 1, 1, own_per_head, 0, 0, None), out_axes=1)
    rows = jax.vmap(heads, in_axes=(0, 0, 0, shared_by_rows, 0, 0, 0))
    return rows(q, k, v, _per_head(terms, H), mask, keep, positions)


def _per_head(terms: Terms, H: int) -> Terms:
    """Every table with one row of values for each of the H heads."""

    def repeat(table: Table | None) -> Table | None:
        if table is None:
            return None
        return Table(jnp.broadcast_to(table.values, (H, *table.values.shape[1:])), table.first)

    return _each_table(terms, repeat)


def _axes(terms: Terms, *, features: int, tables: int | None) -> Terms:
    """The terms with the axis to map over in place of every array."""
    axes = _each_table(terms, lambda t: None if t is None else Table(tables, t.first))
    return dataclasses.replace(
        axes, query_features=None if terms.query_features is None else features
    )


def _each_table(terms: Terms, change: Callable[[Table | None], Table | None]) -> Terms:
    return dataclasses.replace(
        terms,
        query_table=change(terms.query_table),
        bias=change(terms.bias),
        value_table=change(terms.value_table),
    )
