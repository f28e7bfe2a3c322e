"""KERPLE: a learned penalty that grows with the logarithm or a power of distance."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array

from relpos.schemes import Kerple
from relpos_jax.kernels.terms import Lowered
from relpos_jax.schemes.call import Call
from relpos_jax.schemes.unbounded import unbounded

__all__ = ["logarithmic", "lower", "power", "softplus"]


def lower(scheme: Kerple, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k> - p * log(1 + a * |j - i|), or - p * |j - i| ** a."""
    p = softplus(params["penalty"])
    if scheme.kind == "log":
        terms = unbounded(logarithmic, (p, softplus(params["rate"])), call)
    else:
        # The slope of `sigmoid` is s * (1 - s), which loses its digits where s is nearly 1.
        terms = unbounded(power, (p, 2.0 * jnp.exp(-softplus(-params["exponent"]))), call)
    return Lowered(call.q, call.k, terms)


def softplus(x: Array) -> Array:
    """log(1 + exp x)."""
    return jax.nn.softplus(x)


def logarithmic(params: tuple[Array, ...], distance: Array) -> Array:
    """-p * log(1 + a * |distance|)."""
    p, a = params
    return -p * jnp.log1p(a * jnp.abs(distance).astype(a.dtype))


def power(params: tuple[Array, ...], distance: Array) -> Array:
    """-p * |distance| ** a."""
    p, a = params
    steps = jnp.abs(distance).astype(a.dtype)
    # Distance 0 is taken out before the power, whose slope in a would be NaN there.
    grown = jnp.where(steps == 0, 0.0, jnp.where(steps == 0, 1.0, steps) ** a)
    return -p * grown
