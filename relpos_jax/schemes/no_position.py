"""No position: the content alone."""

from __future__ import annotations

from collections.abc import Mapping

from jax import Array

from relpos.schemes import NoPosition
from relpos_jax.kernels.positions import Positions
from relpos_jax.kernels.terms import Lowered, Terms

__all__ = ["lower"]


def lower(
    scheme: NoPosition,
    params: Mapping[str, Array],
    q: Array,
    k: Array,
    positions: Positions,
    scale: float,
) -> Lowered:
    """score = scale * <q, k>."""
    return Lowered(q, k, Terms(scale))
