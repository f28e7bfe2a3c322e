"""Sandwich: cosines of the distances, or of what they are the differences of."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from relpos.schemes import Sandwich
from relpos_torch.constants import constant
from relpos_torch.kernels.terms import Lowered, PairBias, Table, Terms
from relpos_torch.schemes.call import Call
from relpos_torch.schemes.rope import angles

__all__ = ["fixed_weights", "lower"]


def lower(scheme: Sandwich, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * <q, k> - 1/ratio * sum_m (1 - cos((j - i) f_m))."""
    at, dtype = call.positions, call.q.dtype
    weights = fixed_weights(scheme, call.q.shape[1]).to(call.q)
    if at.query is None:
        distance = torch.arange(1 - at.Lk, at.Lq, device=call.q.device)
        cos, _ = angles(scheme, distance, 0, dtype)
        by_distance = weights[:, None] * (cos - 1.0).sum(-1)
        return Lowered(call.q, call.k, Terms(call.scale, bias=(Table(by_distance, 1 - at.Lk),)))

    def pairs(params: tuple[Tensor, ...], query: Tensor, key: Tensor) -> Tensor:
        # cos(b - a) = cos a cos b + sin a sin b: no number per pair and frequency is needed.
        of_query, of_key = (torch.cat(angles(scheme, side, 0, dtype), -1) for side in (query, key))
        fallen = of_query @ of_key.mT - scheme.width // 2
        return params[0][:, None, None] * fallen.unsqueeze(-3)

    return Lowered(call.q, call.k, Terms(call.scale, pair_bias=PairBias(pairs, (weights,))))


@constant
def fixed_weights(scheme: Sandwich, num_heads: int) -> Tensor:
    """1 / ratio of each head, in float64."""
    return 1.0 / torch.tensor(scheme.ratios(num_heads), dtype=torch.float64)
