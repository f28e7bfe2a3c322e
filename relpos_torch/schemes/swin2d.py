"""Swin2D: the table is by offset already."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from relpos.schemes import Swin2D
from relpos_torch.kernels.terms import Lowered, Terms
from relpos_torch.schemes.call import Call
from relpos_torch.schemes.grid import beyond, by_offset

__all__ = ["lower"]


def lower(scheme: Swin2D, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * <q, k> + bias_table[h, offset from query to key]."""
    table = by_offset(params["bias_table"], scheme.height, scheme.width)
    return Lowered(call.q, call.k, Terms(call.scale, bias=(table, *beyond(scheme, call))))
