"""KERPLE: a learned penalty that grows with the logarithm or a power of distance."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from relpos.schemes import Kerple
from relpos_torch.kernels.terms import Lowered
from relpos_torch.schemes.call import Call
from relpos_torch.schemes.unbounded import unbounded

__all__ = ["logarithmic", "lower", "power", "softplus"]


def lower(scheme: Kerple, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * <q, k> - p * log(1 + a * |j - i|), or - p * |j - i| ** a."""
    p = softplus(params["penalty"])
    if scheme.kind == "log":
        return Lowered(call.q, call.k, unbounded(logarithmic, (p, softplus(params["rate"])), call))
    # Unlike that of `sigmoid`, the slope of this keeps its digits where a is nearly 2.
    a = 2.0 * torch.exp(-softplus(-params["exponent"]))
    return Lowered(call.q, call.k, unbounded(power, (p, a), call))


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp x), where torch's own is x itself beyond 20."""
    return torch.logaddexp(x, x.new_zeros(()))


def logarithmic(params: tuple[Tensor, ...], distance: Tensor) -> Tensor:
    """-p * log(1 + a * |distance|)."""
    p, a = (param[:, None, None] for param in params)
    return -p * torch.log1p(a * distance.abs().to(a.dtype))


def power(params: tuple[Tensor, ...], distance: Tensor) -> Tensor:
    """-p * |distance| ** a."""
    p, a = (param[:, None, None] for param in params)
    # 0 ** a is 0 whatever a is, but its slope in a would come out as 0 * log 0.
    grown = distance.abs().clamp(min=1).to(a.dtype) ** a
    return -p * grown.masked_fill(distance == 0, 0.0)
