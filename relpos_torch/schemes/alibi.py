"""ALiBi: a slope per head times the distance."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from relpos.schemes import ALiBi
from relpos_torch.constants import constant
from relpos_torch.kernels.terms import Lowered
from relpos_torch.schemes.call import Call
from relpos_torch.schemes.unbounded import unbounded

__all__ = ["fixed_slopes", "lower"]


def lower(scheme: ALiBi, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * <q, k> - slope * |j - i|, or + slope * (j - i)."""
    if scheme.learned:
        slopes = params["slopes"]
    else:
        slopes = fixed_slopes(scheme, call.q.shape[1]).to(call.q)
    factor = call.scale if scheme.scaled else 1.0

    def bias(params: tuple[Tensor, ...], distance: Tensor) -> Tensor:
        steps = -distance.abs() if scheme.symmetric else distance
        return params[0][:, None, None] * steps.to(slopes.dtype) * factor

    return Lowered(call.q, call.k, unbounded(bias, (slopes,), call))


@constant
def fixed_slopes(scheme: ALiBi, num_heads: int) -> Tensor:
    """The slopes [H] in float64."""
    return torch.tensor(scheme.slopes(num_heads), dtype=torch.float64)
