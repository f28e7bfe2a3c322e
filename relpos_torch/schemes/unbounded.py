"""Biases that are a function of distance without an end: a table for whatever a call reads."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from relpos_torch.kernels.terms import PairBias, Table, Terms
from relpos_torch.schemes.call import Call

__all__ = ["unbounded"]


def unbounded(
    function: Callable[[tuple[Tensor, ...], Tensor], Tensor],
    params: tuple[Tensor, ...],
    call: Call,
) -> Terms:
    """Terms with a bias that is a function of distance.

    At the default positions the distances are known, and each is computed once. At others they may
    lie anywhere, so that pairs are computed one by one.

    Args:
        function: From `params` and distances j - i [*B, 1, Lq, Lk] to biases [*B, 1 or H, Lq, Lk].
        params: What it reads beside the distances.
        call: The call.
    """
    at = call.positions
    if at.query is None:
        distance = torch.arange(1 - at.Lk, at.Lq, device=call.q.device)
        by_distance = function(params, distance[None, None]).squeeze(-2)
        return Terms(call.scale, bias=(Table(by_distance, 1 - at.Lk),))

    def pairs(params: tuple[Tensor, ...], query: Tensor, key: Tensor) -> Tensor:
        distance = key.unsqueeze(-2) - query.unsqueeze(-1)
        return function(params, distance.unsqueeze(-3))

    return Terms(call.scale, pair_bias=PairBias(pairs, params))
