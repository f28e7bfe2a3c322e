"""Sandwich: cosines of the distances, or of what they are the differences of."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jax import Array

from relpos.schemes import Sandwich
from relpos_jax.kernels.terms import Lowered, PairBias, Table, Terms
from relpos_jax.schemes.call import Call
from relpos_jax.schemes.rope import angles

__all__ = ["fixed_weights", "lower"]


def lower(scheme: Sandwich, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k> - 1/ratio * sum_m (1 - cos((j - i) f_m))."""
    at, dtype = call.positions, call.q.dtype
    weights = fixed_weights(scheme, call.q.shape[2], dtype)

    def embedded(positions: Array) -> Array:
        return jnp.concatenate(angles(scheme, positions, 0, dtype), -1)

    def pairs(params: tuple[Array, ...], query: Array, key: Array) -> Array:
        # The product of two embeddings is the sum of the cosines of their distance.
        (weight,) = params
        return weight * (embedded(query) @ embedded(key).T - scheme.width // 2)

    if at.query is None:
        cos, _ = angles(scheme, jnp.arange(at.Lq + at.Lk) - at.Lk, 0, dtype)
        by_distance = jnp.outer(weights, jnp.sum(cos - 1.0, axis=-1))
        return Lowered(call.q, call.k, Terms(call.scale, bias=(Table(by_distance, -at.Lk),)))
    return Lowered(call.q, call.k, Terms(call.scale, pair_bias=PairBias(pairs, (weights,))))


def fixed_weights(scheme: Sandwich, num_heads: int, dtype: jnp.dtype) -> Array:
    """1 / ratio of each head, rounded once."""
    return jnp.asarray(1.0 / np.array(scheme.ratios(num_heads)), dtype)
