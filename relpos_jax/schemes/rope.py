"""RoPE: q and k are rotated by their positions; no term is left."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from relpos.rotation import BYTES, byte_tables
from relpos.schemes import RoPE
from relpos_jax.kernels.positions import Positions
from relpos_jax.kernels.terms import Lowered, Terms

__all__ = ["angles", "byte_angles", "lower", "rotate"]


def lower(
    scheme: RoPE,
    params: Mapping[str, Array],
    q: Array,
    k: Array,
    positions: Positions,
    scale: float,
) -> Lowered:
    """score = scale * <R(i) q, R(j) k>."""
    query, key = positions.arrays()
    q = rotate(q, *angles(scheme, query, q.shape[-1], q.dtype), scheme.layout)
    k = rotate(k, *angles(scheme, key, k.shape[-1], k.dtype), scheme.layout)
    return Lowered(q, k, Terms(scale))


def angles(
    scheme: RoPE, positions: Int[Array, "*B L"], head_dim: int, dtype: jnp.dtype
) -> tuple[Float[Array, "*B L m"], Float[Array, "*B L m"]]:
    """Cosines and sines of position * f_m, by adding the angles of the position's bytes."""
    cos_table, sin_table = byte_angles(scheme, head_dim, dtype)
    distance_from_zero = jnp.abs(positions)
    cos, sin = jnp.ones((), dtype), jnp.zeros((), dtype)
    for place in range(BYTES):
        byte = (distance_from_zero >> (8 * place)) & 255
        cos_byte = jnp.take(cos_table[place], byte, axis=0, mode="clip")
        sin_byte = jnp.take(sin_table[place], byte, axis=0, mode="clip")
        cos, sin = cos * cos_byte - sin * sin_byte, sin * cos_byte + cos * sin_byte
    return cos, sin * jnp.sign(positions)[..., None].astype(dtype)


def byte_angles(
    scheme: RoPE, head_dim: int, dtype: jnp.dtype
) -> tuple[Float[Array, "places 256 m"], Float[Array, "places 256 m"]]:
    """Cosines and sines [place, byte, m] of byte * 256**place * f_m."""
    cos, sin = byte_tables(scheme.base, scheme.rotated(head_dim), jnp.dtype(dtype).name)
    return jnp.asarray(cos), jnp.asarray(sin)


def rotate(
    x: Float[Array, "B L H d"],
    cos: Float[Array, "*B L m"],
    sin: Float[Array, "*B L m"],
    layout: str,
) -> Float[Array, "B L H d"]:
    """Rotate the first 2m channels of x, paired as `layout` says."""
    if cos.ndim == 2:
        cos, sin = cos[None], sin[None]
    cos, sin = cos[:, :, None], sin[:, :, None]
    m = cos.shape[-1]
    turning, still = x[..., : 2 * m], x[..., 2 * m :]
    if layout == "half":
        first, second = turning[..., :m], turning[..., m:]
        turned = jnp.concatenate((first * cos - second * sin, first * sin + second * cos), -1)
    else:
        first, second = turning[..., 0::2], turning[..., 1::2]
        pairs = jnp.stack((first * cos - second * sin, first * sin + second * cos), -1)
        turned = pairs.reshape(turning.shape)
    return jnp.concatenate((turned, still), -1)
