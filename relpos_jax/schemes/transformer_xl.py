"""TransformerXL: sinusoids of distances are projected to a table, or queries are projected to meet
sinusoids of positions.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from relpos.schemes import TransformerXL
from relpos_jax.kernels.positions import Positions, distance_range
from relpos_jax.kernels.terms import Lowered, Product, Table, Terms
from relpos_jax.schemes.call import Call
from relpos_jax.schemes.rope import angles

__all__ = ["lower", "sinusoids", "turned"]


def lower(scheme: TransformerXL, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * (<q + content_bias, k> + <q + position_bias, s(i - j) @ position_kernel>)."""
    q = call.q + params["content_bias"][None, None]
    features = call.q + params["position_bias"][None, None]
    kernel, positions = params["position_kernel"], call.positions
    B, Lq, _, d = q.shape
    distances = scheme.projected(distance_range(positions), B * Lq, positions.Lk, d)
    if distances is None:
        weights = jnp.einsum("bihd,hed->bihe", features, kernel)
        by_query, by_key = turned(scheme, weights, positions)
        by_key = jnp.broadcast_to(by_key, (*call.k.shape[:-1], scheme.width))
        return Lowered(
            jnp.concatenate((q, by_query), -1),
            jnp.concatenate((call.k, by_key), -1),
            Terms(call.scale),
        )
    lowest, highest = distances
    waves = sinusoids(scheme, -jnp.arange(lowest, highest + 1), q.dtype)
    table = Table(jnp.einsum("ne,hed->hnd", waves, kernel), lowest)
    return Lowered(q, call.k, Terms(call.scale, query=(Product(features, table, call.scale),)))


def sinusoids(scheme: TransformerXL, x: Int[Array, " N"], dtype: jnp.dtype) -> Float[Array, "N e"]:
    """s(x) of whole numbers."""
    cos, sin = angles(scheme, jnp.abs(x) if scheme.symmetric else x, 0, dtype)
    if scheme.order == "concat":
        return jnp.concatenate((sin, cos), -1)
    return jnp.stack((sin, cos), -1).reshape(len(x), scheme.width)


def turned(
    scheme: TransformerXL, weights: Float[Array, "B Lq H e"], positions: Positions
) -> tuple[Float[Array, "B Lq H e"], Float[Array, "rows Lk 1 e"]]:
    """What of queries and of keys has the product <weights[i], s(i - j)>."""
    if scheme.order == "concat":
        of_sin, of_cos = jnp.split(weights, 2, -1)
    else:
        of_sin, of_cos = weights[..., 0::2], weights[..., 1::2]
    query, key = (at[None] if at.ndim == 1 else at for at in positions.arrays())
    cos, sin = (each[:, :, None] for each in angles(scheme, query, 0, weights.dtype))
    by_query = jnp.concatenate((of_sin * sin + of_cos * cos, of_cos * sin - of_sin * cos), -1)
    by_key = jnp.concatenate(angles(scheme, key, 0, weights.dtype), -1)
    return by_query, by_key[:, :, None]
