"""CoPE: the table goes to the kernel, which alone sees whom a query may attend to."""

from __future__ import annotations

from collections.abc import Mapping

from jax import Array

from relpos.schemes import CoPE
from relpos_jax.kernels.terms import Counted, Lowered, Terms
from relpos_jax.schemes.call import Call

__all__ = ["lower"]


def lower(scheme: CoPE, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k> + <q, e[p]>, p the place that the gates count."""
    scale = call.scale if scheme.scaled else 1.0
    counted = Counted(params["position_embedding"], scale)
    return Lowered(call.q, call.k, Terms(call.scale, counted=counted))
