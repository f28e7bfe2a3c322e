"""ContinuousBias: a small network, asked once per distance where the distances are known."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from relpos.schemes import ContinuousBias
from relpos_torch.kernels.terms import Lowered
from relpos_torch.schemes.call import Call
from relpos_torch.schemes.network import network
from relpos_torch.schemes.unbounded import unbounded

__all__ = ["lower"]


def lower(scheme: ContinuousBias, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * <q, k> + network(x(j - i))."""

    def bias(params: tuple[Tensor, ...], distance: Tensor) -> Tensor:
        x = distance.squeeze(-3).to(params[0].dtype)
        if scheme.distance == "log":
            x = x.sign() * torch.log1p(x.abs())
        return network(params, x, scheme.activation)

    table = scheme.parameters(call.q.shape[1], call.q.shape[-1])
    in_order = tuple(params[parameter.name] for parameter in table)
    return Lowered(call.q, call.k, unbounded(bias, in_order, call))
