"""ALiBi: a slope per head times the distance."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from relpos.schemes import ALiBi
from relpos_jax.kernels.terms import Lowered
from relpos_jax.schemes.call import Call
from relpos_jax.schemes.unbounded import unbounded

__all__ = ["fixed_slopes", "lower"]


def lower(scheme: ALiBi, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k> - slope * |j - i|, or + slope * (j - i)."""
    num_heads, dtype = call.q.shape[2], call.q.dtype
    slopes = params["slopes"] if scheme.learned else fixed_slopes(scheme, num_heads, dtype)

    def bias(params: tuple[Array, ...], distance: Array) -> Array:
        (slope,) = params
        steps = -jnp.abs(distance) if scheme.symmetric else distance
        by_slope = slope * steps.astype(dtype)
        return call.scale * by_slope if scheme.scaled else by_slope

    return Lowered(call.q, call.k, unbounded(bias, (slopes,), call))


def fixed_slopes(scheme: ALiBi, num_heads: int, dtype: jnp.dtype) -> Array:
    """The slopes [H], rounded once."""
    return jnp.asarray(scheme.slopes(num_heads), dtype)
