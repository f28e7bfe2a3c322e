"""Biases that are a function of distance without an end: a table for whatever a call reads."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from relpos_jax.kernels.terms import PairBias, Table, Terms
from relpos_jax.schemes.call import Call

__all__ = ["unbounded"]


def unbounded(
    function: Callable[[tuple[Array, ...], Array], Array], params: tuple[Array, ...], call: Call
) -> Terms:
    """Terms with a bias that is a function of distance.

    At the default positions the distances are known, and each is computed once. At others they may
    lie anywhere, so that pairs are computed one by one.

    Args:
        function: For one head: from `params` without their first axis and distances j - i of any
            shape to biases of that shape.
        params: What it reads beside the distances, each [1 or H, ...].
        call: The call.
    """
    at = call.positions
    if at.query is None:
        # As many as kernels lay out, one more than are read: a size for lengths by letter, too.
        distance = jnp.arange(at.Lq + at.Lk) - at.Lk
        mapped = tuple(None if len(a) == 1 else 0 for a in params)
        one_or_each = tuple(a[0] if len(a) == 1 else a for a in params)
        heads = jax.vmap(function, (mapped, None), axis_size=max(map(len, params)))
        return Terms(call.scale, bias=(Table(heads(one_or_each, distance), -at.Lk),))

    def pairs(params: tuple[Array, ...], query: Array, key: Array) -> Array:
        return function(params, key[None, :] - query[:, None])

    return Terms(call.scale, pair_bias=PairBias(pairs, params))
