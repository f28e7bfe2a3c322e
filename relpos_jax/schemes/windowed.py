"""Windowed: Shaw's tables with a zero row at each end, which then holds for all beyond."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from relpos.schemes import Windowed
from relpos_jax.kernels.terms import Lowered, Product, Table, Terms
from relpos_jax.schemes.call import Call

__all__ = ["lower"]


def lower(scheme: Windowed, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k + K(j - i)>, value = v + V(j - i); K and V are 0 outside the window."""
    tables = {
        name: Table(jnp.pad(values, ((0, 0), (1, 1), (0, 0))), -scheme.left - 1)
        for name, values in params.items()
    }
    terms = Terms(
        call.scale,
        query=(Product(call.q, tables["key_table"], call.scale),) if scheme.keys else (),
        value_table=tables.get("value_table"),
    )
    return Lowered(call.q, call.k, terms)
