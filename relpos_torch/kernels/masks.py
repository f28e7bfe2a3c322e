"""Who may attend to whom, and the softmax over those."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from relpos.checks import Sizes, check_mask
from relpos_torch.kernels.positions import Positions

__all__ = ["attention_mask", "masked_softmax", "not_after"]


def attention_mask(
    mask: Tensor | None, positions: Positions, sizes: Sizes, device: torch.device
) -> Bool[Tensor, "rows heads queries keys"] | None:
    """The caller's mask and causality in one, four axes that broadcast to
    [B, H, Lq, Lk]; None allows all.

    Causal means: no key at a later position than the query's. With the default positions that
    aligns the queries to the END of the keys.
    """
    if mask is not None:
        check_mask(tuple(mask.shape), str(mask.dtype), sizes)
    if not positions.causal:
        return mask
    allowed = not_after(positions, device)
    return allowed if mask is None else mask & allowed


def not_after(positions: Positions, device: torch.device) -> Bool[Tensor, "rows 1 Lq Lk"]:
    """Whether the key stands where the query does or before it, for every pair."""
    query, key = positions.tensors(device)
    past = key.unsqueeze(-2) <= query.unsqueeze(-1)
    return past[:, None] if past.ndim == 3 else past[None, None]


def masked_softmax(
    scores: Float[Tensor, "*B Lq Lk"], mask: Bool[Tensor, "..."] | None
) -> Float[Tensor, "*B Lq Lk"]:
    """Softmax over the allowed keys; a row that may attend to nothing is 0, and so its gradient."""
    if mask is None:
        return scores.softmax(-1)
    # The dtype's own lowest number, not infinity: finite scores stay finite all the way.
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    largest = scores.detach().amax(-1, keepdim=True)
    exponentials = (scores - largest).exp().masked_fill(~mask, 0.0)
    total = exponentials.sum(-1, keepdim=True)
    return exponentials / total.masked_fill(total == 0.0, 1.0)
