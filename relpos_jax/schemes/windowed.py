"""Windowed: Shaw's tables with a zero row at each end, which then holds for all beyond."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from relpos.schemes import Windowed
from relpos_jax.kernels.positions import Positions
from relpos_jax.kernels.terms import Lowered, Table, Terms

__all__ = ["lower"]


def lower(
    scheme: Windowed,
    params: Mapping[str, Array],
    q: Array,
    k: Array,
    positions: Positions,
    scale: float,
) -> Lowered:
    """score = scale * <q, k + K(j - i)>, value = v + V(j - i); K and V are 0 outside the window."""
    tables = {
        name: Table(jnp.pad(values, ((0, 0), (1, 1), (0, 0))), -scheme.left - 1)
        for name, values in params.items()
    }
    terms = Terms(
        scale,
        query_features=q if scheme.keys else None,
        query_table=tables.get("key_table"),
        query_scale=scale,
        value_table=tables.get("value_table"),
    )
    return Lowered(q, k, terms)
