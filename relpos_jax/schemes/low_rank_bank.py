"""LowRankBank: the bank with a zero row at each end, which then holds for all beyond."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from relpos.schemes import LowRankBank
from relpos_jax.kernels.terms import Lowered, Product, Table, Terms
from relpos_jax.schemes.call import Call

__all__ = ["lower"]


def lower(scheme: LowRankBank, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k> + <f, bank(j - i)>; the bank is 0 outside its extent."""
    assert call.query_features is not None
    bank = Table(jnp.pad(params["bank"], ((0, 0), (1, 1), (0, 0))), -scheme.extent)
    terms = Terms(call.scale, query=(Product(call.query_features, bank),))
    return Lowered(call.q, call.k, terms)
