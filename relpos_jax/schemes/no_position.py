"""No position: the content alone."""

from __future__ import annotations

from collections.abc import Mapping

from jax import Array

from relpos.schemes import NoPosition
from relpos_jax.kernels.terms import Lowered, Terms
from relpos_jax.schemes.call import Call

__all__ = ["lower"]


def lower(scheme: NoPosition, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k>."""
    return Lowered(call.q, call.k, Terms(call.scale))
