"""ContinuousBias: a small network, asked once per distance where the distances are known."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from relpos.schemes import ContinuousBias
from relpos_jax.kernels.terms import Lowered
from relpos_jax.schemes.call import Call
from relpos_jax.schemes.network import network
from relpos_jax.schemes.unbounded import unbounded

__all__ = ["lower"]


def lower(scheme: ContinuousBias, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k> + network(x(j - i))."""
    dtype = call.q.dtype

    def bias(params: tuple[Array, ...], distance: Array) -> Array:
        x = distance.astype(dtype)
        if scheme.distance == "log":
            x = jnp.sign(x) * jnp.log1p(jnp.abs(x))
        return network(params, x, scheme.activation)

    _, _, num_heads, head_dim = call.q.shape
    names = [parameter.name for parameter in scheme.parameters(num_heads, head_dim)]
    return Lowered(call.q, call.k, unbounded(bias, tuple(params[name] for name in names), call))
