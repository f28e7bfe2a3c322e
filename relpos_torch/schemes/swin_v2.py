"""SwinV2: the network is asked once for every offset, which makes a table."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from relpos.schemes import SwinV2
from relpos_torch.constants import constant
from relpos_torch.kernels.terms import Lowered, Terms
from relpos_torch.schemes.call import Call
from relpos_torch.schemes.grid import beyond, by_offset

__all__ = ["coordinates", "lower"]


def lower(scheme: SwinV2, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * <q, k> + 16 sigmoid(<relu(a @ hidden_kernel + hidden_bias), output>)."""
    offsets = coordinates(scheme, call.q.dtype).to(call.q.device)
    hidden = torch.relu(offsets @ params["hidden_kernel"][0] + params["hidden_bias"])
    bias = 16 * torch.sigmoid(params["output_kernel"] @ hidden.mT)
    table = by_offset(bias, scheme.height, scheme.width)
    return Lowered(call.q, call.k, Terms(call.scale, bias=(table, *beyond(scheme, call))))


@constant
def coordinates(scheme: SwinV2, dtype: torch.dtype) -> Tensor:
    """What the network reads of each offset, [N, 2]."""
    return torch.tensor(scheme.coordinates(), dtype=dtype)
