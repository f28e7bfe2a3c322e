"""What a layer makes for its scheme: features of each token, and parameters that are tied."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from relpos.schemes.base import Projection

__all__ = ["heads_first", "read"]


def read(
    projection: Projection,
    x: Float[Tensor, "B L D"],
    kernel: Float[Tensor, "..."],
    bias: Float[Tensor, "..."] | None,
    num_heads: int,
) -> Float[Tensor, "B H L e"]:
    """x W + b for every head, or with every head's own channels of x."""
    if projection.per_head:
        features = x.unflatten(-1, (num_heads, -1)).transpose(1, 2) @ kernel
        return features if bias is None else features + bias
    features = torch.einsum("bld,dhe->bhle", x, kernel)
    return features if bias is None else features + bias.unsqueeze(-2)


def heads_first(
    own: Float[Tensor, "heads_and_d *D"], width: int, num_heads: int
) -> Float[Tensor, "H *D_and_d"]:
    """A weight [H*d, D] or bias [H*d] of the layer, heads first, one for every query head."""
    by_head = own.unflatten(0, (-1, width))
    by_head = by_head.mT if own.ndim == 2 else by_head
    return by_head.repeat_interleave(num_heads // len(by_head), 0)
