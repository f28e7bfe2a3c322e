"""FIRE: a small network of the distance over the query's position, asked for every pair."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from relpos.schemes import Fire
from relpos_jax.kernels.terms import Lowered, PairBias, Terms
from relpos_jax.schemes.call import Call
from relpos_jax.schemes.kerple import softplus
from relpos_jax.schemes.network import network

__all__ = ["lower", "share"]


def lower(scheme: Fire, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k> + network(psi(|i - j|) / psi(max(i, L)))."""
    _, _, num_heads, head_dim = call.q.shape
    names = [parameter.name for parameter in scheme.parameters(num_heads, head_dim)]
    c, start = softplus(params["rate"]), scheme.threshold * softplus(params["stretch"])
    read = (c, start, *(params[name] for name in names if name not in ("rate", "stretch")))
    return Lowered(call.q, call.k, Terms(call.scale, pair_bias=PairBias(_bias, read)))


def share(c: Array, start: Array, query: Array, key: Array) -> Array:
    """psi(|i - j|) / psi(max(i, L)) [Lq, Lk] of positions [Lq] and [Lk]."""
    steps = jnp.abs(query[:, None] - key[None, :]).astype(c.dtype)
    i = query.astype(c.dtype)
    # By choice and not by `maximum`, whose slopes are halves where the two are equal.
    measure = jnp.where(i > start, i, start)
    return jnp.log1p(c * steps) / jnp.log1p(c * measure)[:, None]


def _bias(params: tuple[Array, ...], query: Array, key: Array) -> Array:
    c, start, *layers = params
    return network(tuple(layers), share(c, start, query, key), "relu")
