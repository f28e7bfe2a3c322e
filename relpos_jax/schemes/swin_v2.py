"""SwinV2: the network is asked once for every offset, which makes a table."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from relpos.schemes import SwinV2
from relpos_jax.kernels.terms import Lowered, Terms
from relpos_jax.schemes.call import Call
from relpos_jax.schemes.grid import beyond, by_offset

__all__ = ["coordinates", "lower"]


def lower(scheme: SwinV2, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k> + 16 sigmoid(<relu(a @ hidden_kernel + hidden_bias), output>)."""
    a = coordinates(scheme, call.q.dtype)
    hidden = jax.nn.relu(a @ params["hidden_kernel"][0] + params["hidden_bias"])
    bias = 16 * jax.nn.sigmoid(jnp.einsum("hm,nm->hn", params["output_kernel"], hidden))
    table = by_offset(bias, scheme.height, scheme.width)
    return Lowered(call.q, call.k, Terms(call.scale, bias=(table, *beyond(scheme, call))))


def coordinates(scheme: SwinV2, dtype: jnp.dtype) -> Float[Array, "N 2"]:
    """What the network reads of each offset, [N, 2]."""
    return jnp.asarray(scheme.coordinates(), dtype)
