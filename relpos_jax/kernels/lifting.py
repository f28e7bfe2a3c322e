"""Terms of one head, and of all: how a kernel is lifted over heads and batch rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from relpos_jax.kernels.terms import Decay, Product, Table, Terms

__all__ = ["SHARED", "apply", "by_head", "lifted"]

#: In place of an axis: not mapped.
SHARED = -1


def by_head(terms: Terms, shared: int | None = None) -> tuple[Terms, Terms, Terms]:
    """Terms ready to be mapped over batch rows and then over heads, with the axes of both maps.

    What all heads share loses its first axis and is not mapped, so that it is computed once.

    Args:
        terms: The terms of a call.
        shared: What stands for the axis of what is not mapped: None for `jax.vmap`.

    Returns:
        The terms, then the axes of batch rows and of heads.
    """
    ready = apply(terms, lambda a: a, lambda a: a[0] if len(a) == 1 else a)
    rows = apply(terms, lambda a: 0, lambda a: shared)
    heads = apply(terms, lambda a: 1, lambda a: shared if len(a) == 1 else 0)
    return ready, rows, heads


def apply(
    terms: Terms,
    per_token: Callable[[Array], Any],
    per_head: Callable[[Array], Any],
    per_key: Callable[[Array], Any] | None = None,
) -> Terms:
    """A copy in which one function is applied to what has a token axis, one to what has not.

    What has an axis of keys is met by `per_key` where that is given.
    """
    per_key = per_token if per_key is None else per_key

    def table(old: Table) -> Table:
        return replace(old, values=per_head(old.values))

    def product(old: Product, per_token: Callable[[Array], Any]) -> Product:
        return replace(old, features=per_token(old.features), table=table(old.table))

    pair, decay, counted = terms.pair_bias, terms.decay, terms.counted
    if pair is not None:
        pair = replace(pair, params=tuple(map(per_head, pair.params)))
    if decay is not None:
        decay = Decay(per_token(decay.query), per_key(decay.key))
    if counted is not None:
        counted = replace(counted, values=per_head(counted.values))
    return replace(
        terms,
        query=tuple(product(old, per_token) for old in terms.query),
        key=tuple(product(old, per_key) for old in terms.key),
        bias=tuple(map(table, terms.bias)),
        pair_bias=pair,
        decay=decay,
        counted=counted,
        value_table=None if terms.value_table is None else table(terms.value_table),
    )


def lifted(
    function: Callable[..., Any], axes: tuple[Any, ...], *, together: bool
) -> Callable[..., Any]:
    """A function over an axis of its arguments, all entries together or one after the other.

    Args:
        function: Of trees of arrays.
        axes: For each argument a tree of the same form: the axis of each array, or `SHARED`.
        together: As `jax.vmap` does; otherwise there is only one entry's work in memory at a time.

    Returns:
        The function; the first axis of its results is the one it is lifted over.
    """
    along = jax.tree.leaves(axes)

    def over_axis(*arguments: Any) -> Any:
        leaves, form = jax.tree.flatten(arguments)
        pairs = list(zip(leaves, along, strict=True))

        def one(mapped: list[Array]) -> Any:
            entries = iter(mapped)
            chosen = [leaf if axis == SHARED else next(entries) for leaf, axis in pairs]
            return function(*jax.tree.unflatten(form, chosen))

        mapped = [
            jnp.moveaxis(leaf, axis, 0) if axis else leaf for leaf, axis in pairs if axis != SHARED
        ]
        return jax.vmap(one)(mapped) if together else jax.lax.map(one, mapped)

    return over_axis
