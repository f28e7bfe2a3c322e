"""Who may attend to whom, and the softmax over those."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from relpos.checks import Sizes, check_mask
from relpos_jax.kernels.positions import Positions

__all__ = ["attention_mask", "masked_softmax", "not_after"]


def attention_mask(
    mask: Array | None, positions: Positions, sizes: Sizes
) -> Bool[Array, "rows heads queries keys"] | None:
    """The caller's mask and causality in one, four axes that broadcast to
    [B, H, Lq, Lk]; None allows all.

    Causal means: no key at a later position than the query's. With the default positions that
    aligns the queries to the END of the keys.
    """
    if mask is not None:
        check_mask(mask.shape, str(mask.dtype), sizes)
    if not positions.causal:
        return mask
    past = not_after(positions)
    allowed = past[:, None] if past.ndim == 3 else past[None, None]
    return allowed if mask is None else mask & allowed


def not_after(positions: Positions) -> Bool[Array, "*rows Lq Lk"]:
    """Whether the key stands where the query does or before it, for every pair."""
    query, key = positions.arrays()
    return key[..., None, :] <= query[..., :, None]


def masked_softmax(
    scores: Float[Array, "Lq Lk"], mask: Bool[Array, "Lq Lk"] | None
) -> Float[Array, "Lq Lk"]:
    """Softmax over the allowed keys; a row that may attend to nothing is 0, and so its gradient."""
    if mask is None:
        return jax.nn.softmax(scores, axis=-1)
    # The dtype's own lowest number, not infinity: finite scores stay finite all the way.
    scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    largest = jax.lax.stop_gradient(scores.max(-1, keepdims=True))
    exponentials = jnp.where(mask, jnp.exp(scores - largest), 0.0)
    total = exponentials.sum(-1, keepdims=True)
    return exponentials / jnp.where(total == 0.0, 1.0, total)
