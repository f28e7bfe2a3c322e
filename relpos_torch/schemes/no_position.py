"""No position: the content alone."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from relpos.schemes import NoPosition
from relpos_torch.kernels.positions import Positions
from relpos_torch.kernels.terms import Lowered, Terms

__all__ = ["lower"]


def lower(
    scheme: NoPosition,
    params: Mapping[str, Tensor],
    q: Tensor,
    k: Tensor,
    positions: Positions,
    scale: float,
) -> Lowered:
    """score = scale * <q, k>."""
    return Lowered(q, k, Terms(scale))
