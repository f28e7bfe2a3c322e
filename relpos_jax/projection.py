"""What a layer makes for its scheme: features of each token, and parameters that are tied."""

from __future__ import annotations

import jax.numpy as jnp
from flax.linen.dtypes import promote_dtype
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from relpos.schemes.base import Projection

__all__ = ["heads_first", "read"]


def read(
    projection: Projection,
    x: Float[Array, "B L D"],
    kernel: Float[Array, "..."],
    bias: Float[Array, "..."] | None,
    num_heads: int,
    dtype: DTypeLike | None,
) -> Float[Array, "B L H e"]:
    """x W + b for every head, or with every head's own channels of x."""
    x, kernel, bias = promote_dtype(x, kernel, bias, dtype=dtype)
    if projection.per_head:
        by_head = x.reshape(*x.shape[:2], num_heads, -1)
        features = jnp.einsum("blhc,ce->blhe", by_head, kernel)
        return features if bias is None else features + bias[None, None, None]
    features = jnp.einsum("bld,dhe->blhe", x, kernel)
    return features if bias is None else features + bias[None, None]


def heads_first(own: Float[Array, "..."], num_heads: int) -> Float[Array, "H ..."]:
    """A kernel [D, H, d] or bias [H, d] of the layer, heads first, one for every query head."""
    by_head = own.swapaxes(0, 1) if own.ndim == 3 else own
    return jnp.repeat(by_head, num_heads // len(by_head), axis=0)
