"""Terms of one head, and of all: how `jax.vmap` lifts a kernel over heads and batch rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jaxtyping import Array

from relpos_jax.kernels.terms import Decay, Product, Table, Terms

__all__ = ["apply", "by_head"]


def by_head(terms: Terms) -> tuple[Terms, Terms, Terms]:
    """Terms ready to be mapped over batch rows and then over heads, with the axes of both maps.

    What all heads share loses its first axis and is not mapped, so that it is computed once.

    Returns:
        The terms, then for `jax.vmap` the axes of batch rows and of heads (None: not mapped).
    """
    ready = apply(terms, lambda a: a, lambda a: a[0] if len(a) == 1 else a)
    rows = apply(terms, lambda a: 0, lambda a: None)
    heads = apply(terms, lambda a: 1, lambda a: None if len(a) == 1 else 0)
    return ready, rows, heads


def apply(
    terms: Terms, per_token: Callable[[Array], Any], per_head: Callable[[Array], Any]
) -> Terms:
    """A copy in which one function is applied to what has a token axis, one to what has not."""

    def table(old: Table) -> Table:
        return replace(old, values=per_head(old.values))

    def product(old: Product) -> Product:
        return replace(old, features=per_token(old.features), table=table(old.table))

    pair, decay, counted = terms.pair_bias, terms.decay, terms.counted
    if pair is not None:
        pair = replace(pair, params=tuple(map(per_head, pair.params)))
    if decay is not None:
        decay = Decay(per_token(decay.query), per_token(decay.key))
    if counted is not None:
        counted = replace(counted, values=per_head(counted.values))
    return replace(
        terms,
        query=tuple(map(product, terms.query)),
        key=tuple(map(product, terms.key)),
        bias=tuple(map(table, terms.bias)),
        pair_bias=pair,
        decay=decay,
        counted=counted,
        value_table=None if terms.value_table is None else table(terms.value_table),
    )
