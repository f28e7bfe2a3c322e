"""Forgetting attention: a running sum of the gates' logarithms, read at queries and at keys."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from relpos.schemes import ForgettingAttention
from relpos_torch.kernels.positions import Positions
from relpos_torch.kernels.terms import Decay, Lowered, Terms
from relpos_torch.schemes.call import Call

__all__ = ["keys_before", "lower", "running_sums", "sums_at"]


def lower(scheme: ForgettingAttention, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * <q, k> + F(p_i) - F(p_j), F(p) the sum of log f over keys at p or before."""
    assert call.key_features is not None
    logarithms = torch.nn.functional.logsigmoid(call.key_features.squeeze(-1))
    order, query, key = keys_before(call.positions, len(call.q), call.q.device)
    if order is not None:
        logarithms = logarithms.gather(-1, order.unsqueeze(1).expand_as(logarithms))
    sums = running_sums(logarithms)
    decay = Decay(sums_at(sums, query), sums_at(sums, key))
    return Lowered(call.q, call.k, Terms(call.scale, decay=decay))


def keys_before(
    positions: Positions, batch: int, device: torch.device
) -> tuple[Int[Tensor, "B Lk"] | None, Int[Tensor, "*Bq Lq"], Int[Tensor, "*Bk Lk"]]:
    """The keys in order of their positions, None if they are; and how many of them stand where a
    query does or before it, and likewise for each key."""
    query, key = positions.tensors(device)
    if positions.key is None:
        return None, (query + 1).clamp(min=0), key + 1
    query, key = (at.expand(batch, -1).contiguous() for at in (query, key))
    in_order, order = key.sort(-1)
    of_query, of_key = (torch.searchsorted(in_order, at, right=True) for at in (query, key))
    return order, of_query, of_key


def running_sums(x: Float[Tensor, "B H L"]) -> Float[Tensor, "B H L_and_1 2"]:
    """The sum of the first n entries for n = 0 .. L, and what it has lost to rounding."""
    high = torch.nn.functional.pad(x.cumsum(-1), (1, 0))
    lost = (x - high.diff(dim=-1)).detach()
    return torch.stack((high, torch.nn.functional.pad(lost.cumsum(-1), (1, 0))), -1)


def sums_at(
    sums: Float[Tensor, "B H N parts"], counts: Int[Tensor, "*B L"]
) -> Float[Tensor, "B H L parts"]:
    """The sums of so many entries."""
    index = counts.unsqueeze(-1)
    index = index.unsqueeze(1) if index.ndim == 3 else index
    return sums.gather(2, index.expand(*sums.shape[:2], -1, sums.shape[3]))
