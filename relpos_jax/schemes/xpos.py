"""XPos: q and k are rotated, and scaled by inverse powers of their positions; no term is left."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from relpos.checks import check_spread
from relpos.rotation import BYTES, byte_powers
from relpos.schemes import XPos
from relpos_jax.kernels.positions import Positions
from relpos_jax.kernels.terms import Lowered, Terms
from relpos_jax.schemes.call import Call
from relpos_jax.schemes.rope import angles, rotate

__all__ = ["byte_decays", "decay", "lower", "middle", "seen_extent"]


def lower(scheme: XPos, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <z ** ((i - c) / scale_base) R(i) q, z ** ((c - j) / scale_base) R(j) k>."""
    q, k, positions = call.q, call.k, call.positions
    seen = seen_extent(positions)
    if seen is not None:
        check_spread(scheme, *seen)
    at, others = positions.arrays()
    center, beyond = middle(scheme, positions)
    powers = byte_decays(scheme, q.shape[-1], q.dtype)

    def turned(x: Array, here: Array, steps: Array) -> Array:
        factor = jnp.where(beyond, jnp.nan, decay(powers, steps))
        cos, sin = angles(scheme, here, x.shape[-1], x.dtype)
        return rotate(x, cos * factor, sin * factor, scheme.layout)

    return Lowered(
        turned(q, at, at - center), turned(k, others, center - others), Terms(call.scale)
    )


def middle(
    scheme: XPos, positions: Positions
) -> tuple[Int[Array, "*rows 1"], Bool[Array, "*rows 1 1"]]:
    """The middle of each row's positions, and whether they lie too far apart."""
    row = jnp.concatenate(positions.arrays(), -1)
    lowest, highest = row.min(-1, keepdims=True), row.max(-1, keepdims=True)
    return (lowest + highest) // 2, (highest - lowest > scheme.reach)[..., None]


def seen_extent(positions: Positions) -> tuple[int, int] | None:
    """The lowest and highest position of the row with the widest spread, None if not known."""
    if positions.query is None or positions.key is None:
        lengths = positions.Lq, positions.Lk
        known = all(isinstance(length, int) for length in lengths)  # no symbols, as in an export
        return (min(positions.Lk - positions.Lq, 0), positions.Lk - 1) if known else None
    if isinstance(positions.query, jax.core.Tracer) or isinstance(positions.key, jax.core.Tracer):
        return None
    rows = np.concatenate([np.asarray(positions.query), np.asarray(positions.key)], -1)
    widest = rows[np.argmax(np.ptp(rows, -1))]
    return int(widest.min()), int(widest.max())


def decay(
    powers: Float[Array, "places 256 m"], steps: Int[Array, "*rows L"]
) -> Float[Array, "*rows L m"]:
    """z_m ** (steps / scale_base), by multiplying the powers of the bytes of abs(steps)."""
    count = jnp.abs(steps)
    product = jnp.ones((), powers.dtype)
    for place in range(BYTES):
        byte = (count >> (8 * place)) & 255
        product = product * jnp.take(powers[place], byte, axis=0, mode="clip")
    return jnp.where(steps[..., None] < 0, 1 / product, product)


def byte_decays(scheme: XPos, head_dim: int, dtype: jnp.dtype) -> Float[Array, "places 256 m"]:
    """z_m ** (byte * 256**place / scale_base), [place, byte, m]."""
    return jnp.asarray(byte_powers(scheme.rates(head_dim), jnp.dtype(dtype).name))
