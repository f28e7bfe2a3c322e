"""Forgetting attention: a running sum of the gates' logarithms, read at queries and at keys."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from relpos.schemes import ForgettingAttention
from relpos_jax.kernels.positions import Positions
from relpos_jax.kernels.terms import Decay, Lowered, Terms
from relpos_jax.schemes.call import Call

__all__ = ["keys_before", "lower", "running_sums", "sums_at"]


def lower(scheme: ForgettingAttention, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k> + F(p_i) - F(p_j), F(p) the sum of log f over keys at p or before."""
    assert call.key_features is not None
    logarithms = jax.nn.log_sigmoid(call.key_features[..., 0])
    order, at_query, at_key = keys_before(call.positions)
    if order is not None:
        logarithms = jnp.take_along_axis(logarithms, order[..., None], axis=1, mode="clip")
    sums = running_sums(logarithms)
    decay = Decay(query=sums_at(sums, at_query), key=sums_at(sums, at_key))
    return Lowered(call.q, call.k, Terms(call.scale, decay=decay))


def keys_before(
    positions: Positions,
) -> tuple[Int[Array, "B Lk"] | None, Int[Array, "*B Lq"], Int[Array, "*B Lk"]]:
    """The keys in order of their positions, None if they are; and how many of them stand where a
    query does or before it, and likewise for each key."""
    query, key = positions.arrays()
    if positions.key is None:
        return None, jnp.maximum(query + 1, 0), key + 1

    def row(query: Array, key: Array) -> tuple[Array, Array, Array]:
        order = jnp.argsort(key)
        in_order = key[order]
        of_query, of_key = (jnp.searchsorted(in_order, at, side="right") for at in (query, key))
        return order, of_query, of_key

    order, of_query, of_key = jax.vmap(row)(query, key)
    return order, of_query, of_key


def running_sums(x: Float[Array, "B L H"]) -> Float[Array, "B L_and_1 H 2"]:
    """The sum of the first n entries for n = 0 .. L, and what it has lost to rounding."""

    def sums(entries: Array) -> Array:
        return jnp.pad(jnp.cumsum(entries, axis=1), ((0, 0), (1, 0), (0, 0)))

    high = sums(x)
    lost = jax.lax.stop_gradient(x - (high[:, 1:] - high[:, :-1]))
    return jnp.stack((high, sums(lost)), axis=-1)


def sums_at(
    sums: Float[Array, "B N H parts"], counts: Int[Array, "*B L"]
) -> Float[Array, "B L H parts"]:
    """The sums of so many entries."""
    if counts.ndim == 1:
        return jnp.take(sums, counts, axis=1, mode="clip")
    return jnp.take_along_axis(sums, counts[..., None, None], axis=1, mode="clip")
