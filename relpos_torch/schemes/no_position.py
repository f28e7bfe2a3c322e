"""No position: the content alone."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from relpos.schemes import NoPosition
from relpos_torch.kernels.terms import Lowered, Terms
from relpos_torch.schemes.call import Call

__all__ = ["lower"]


def lower(scheme: NoPosition, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * <q, k>."""
    return Lowered(call.q, call.k, Terms(call.scale))
