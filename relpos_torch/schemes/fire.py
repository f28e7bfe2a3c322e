"""FIRE: a small network of the distance over the query's position, asked for every pair."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from relpos.schemes import Fire
from relpos_torch.kernels.terms import Lowered, PairBias, Terms
from relpos_torch.schemes.call import Call
from relpos_torch.schemes.kerple import softplus
from relpos_torch.schemes.network import network

__all__ = ["lower", "share"]


def lower(scheme: Fire, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * <q, k> + network(psi(|i - j|) / psi(max(i, L)))."""

    def bias(params: tuple[Tensor, ...], query: Tensor, key: Tensor) -> Tensor:
        c, start, *layers = params
        return network(tuple(layers), share(c, start, query, key), "relu")

    table = scheme.parameters(call.q.shape[1], call.q.shape[-1])
    layers = (params[parameter.name] for parameter in table[2:])
    start = scheme.threshold * softplus(params["stretch"])
    pair_bias = PairBias(bias, (softplus(params["rate"]), start, *layers))
    return Lowered(call.q, call.k, Terms(call.scale, pair_bias=pair_bias))


def share(c: Tensor, start: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """psi(|i - j|) / psi(max(i, L)) [*B, Lq, Lk] of positions [*B, Lq] and [*B, Lk]."""
    distance = (key.unsqueeze(-2) - query.unsqueeze(-1)).abs().to(c.dtype)
    i = query.unsqueeze(-1).to(c.dtype)
    # Not `maximum`, which would halve the slope of L where the two are equal.
    measure = torch.where(i > start, i, start)
    return torch.log1p(c * distance) / torch.log1p(c * measure)
