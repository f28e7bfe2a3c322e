"""RoPE: q and k are rotated by their positions; no term is left."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from relpos.checks import check_length_seen
from relpos.rotation import BYTES, byte_tables
from relpos.schemes import DynamicNTK, LongRoPE, RoPE, Sandwich, TransformerXL, XPos
from relpos_jax.kernels.positions import Positions
from relpos_jax.kernels.terms import Lowered, Terms
from relpos_jax.schemes.call import Call

__all__ = ["angles", "byte_angles", "call_lengths", "lower", "rotate", "seen_lengths", "turns"]


def lower(scheme: RoPE, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <R(i) q, R(j) k>."""
    query, key = call.positions.along_axes()
    d, dtype = call.q.shape[-1], call.q.dtype
    q = rotate(call.q, *turns(scheme, query, call.positions, d, dtype), scheme.layout)
    k = rotate(call.k, *turns(scheme, key, call.positions, d, dtype), scheme.layout)
    return Lowered(q, k, Terms(call.scale))


def turns(
    scheme: RoPE,
    at: Int[Array, "..."],
    positions: Positions,
    head_dim: int,
    dtype: jnp.dtype,
) -> tuple[Float[Array, "*B L m"], Float[Array, "*B L m"]]:
    """Cosines and sines at some of a call's positions, by the frequencies of its length."""
    scaling = scheme.scaling
    if isinstance(scaling, LongRoPE):
        limit = scaling.original_length
        is_long = jnp.expand_dims(call_lengths(positions) > limit, (-2, -1))
        long = angles(scheme, at, head_dim, dtype, limit + 1)
        short = angles(scheme, at, head_dim, dtype, limit)
        cos, sin = (
            jnp.where(jnp.broadcast_to(is_long, then.shape), then, otherwise)
            for then, otherwise in zip(long, short, strict=True)
        )
    elif isinstance(scaling, DynamicNTK) and scaling.length is None:
        lengths = check_length_seen(seen_lengths(positions))
        rows = [at] if at.ndim == 1 else [at[row : row + 1] for row in range(len(at))]
        by_row = [
            angles(scheme, row, head_dim, dtype, length)
            for row, length in zip(rows, lengths, strict=True)
        ]
        cos, sin = (jnp.concatenate(parts) for parts in zip(*by_row, strict=True))
    else:
        cos, sin = angles(scheme, at, head_dim, dtype)
    if scaling is not None:
        cos, sin = cos * scaling.magnitude, sin * scaling.magnitude
    return cos, sin


def call_lengths(positions: Positions) -> Int[Array, "*B"]:
    """The length of each row: its largest position + 1, over queries and keys."""
    query, key = positions.along_axes()
    within = -1 if positions.axes is None else (-2, -1)
    return jnp.maximum(query.max(within), key.max(within)) + 1


def seen_lengths(positions: Positions) -> list[int] | None:
    """The length of each row, or of all as one; None where values are traced."""
    given = positions.axes or (positions.query, positions.key)
    if given[0] is None:
        return [positions.Lk]
    if any(isinstance(at, jax.core.Tracer) for at in given):
        return None
    query, key = map(np.asarray, given)
    return [int(max(*map(np.max, row))) + 1 for row in zip(query, key, strict=True)]


def angles(
    scheme: RoPE | Sandwich | TransformerXL | XPos,
    positions: Int[Array, "..."],
    head_dim: int,
    dtype: jnp.dtype,
    length: int = 0,
) -> tuple[Float[Array, "*B L m"], Float[Array, "*B L m"]]:
    """Cosines and sines of position * f_m, by adding the angles of the position's bytes.

    Positions are [L] or [B, L], or [B, L, A], of which each pair takes its own axis.
    """
    cos_table, sin_table = byte_angles(scheme, head_dim, dtype, length)
    if positions.ndim == 3:
        assert isinstance(scheme, RoPE)
        assert scheme.axes is not None
        positions = positions[..., np.array(scheme.axes.axis_of_pair())]

        def read(table: Array, byte: Array) -> Array:
            return table[byte, jnp.arange(table.shape[-1])]
    else:
        positions = positions[..., None]

        def read(table: Array, byte: Array) -> Array:
            return jnp.take(table, byte[..., 0], axis=0, mode="clip")

    distance_from_zero = jnp.abs(positions)
    cos, sin = jnp.ones((), dtype), jnp.zeros((), dtype)
    for place in range(BYTES):
        byte = (distance_from_zero >> (8 * place)) & 255
        cos_byte, sin_byte = read(cos_table[place], byte), read(sin_table[place], byte)
        cos, sin = cos * cos_byte - sin * sin_byte, sin * cos_byte + cos * sin_byte
    return cos, sin * jnp.sign(positions).astype(dtype)


def byte_angles(
    scheme: RoPE | Sandwich | TransformerXL | XPos, head_dim: int, dtype: jnp.dtype, length: int
) -> tuple[Float[Array, "places 256 m"], Float[Array, "places 256 m"]]:
    """Cosines and sines [place, byte, m] of byte * 256**place * f_m."""
    cos, sin = byte_tables(scheme.frequencies(head_dim, length), jnp.dtype(dtype).name)
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
