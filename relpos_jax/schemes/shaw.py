"""Shaw: the tables are by distance already, and constant beyond their reach."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from relpos.checks import check_distances
from relpos.schemes import Shaw
from relpos_jax.kernels.positions import Positions, distance_range
from relpos_jax.kernels.terms import Lowered, Table, Terms

__all__ = ["lower"]


def lower(
    scheme: Shaw,
    params: Mapping[str, Array],
    q: Array,
    k: Array,
    positions: Positions,
    scale: float,
) -> Lowered:
    """score = scale * <q, k + K[clip(j - i)]>, value = v + V[clip(j - i)]."""
    tables = {name: Table(values, -scheme.left) for name, values in params.items()}
    terms = Terms(
        scale,
        query_features=q if scheme.keys else None,
        query_table=tables.get("key_table"),
        query_scale=scale,
        bias=None if scheme.clip else _beyond(scheme, positions, q),
        value_table=tables.get("value_table"),
    )
    return Lowered(q, k, terms)


def _beyond(scheme: Shaw, positions: Positions, q: Array) -> Table | None:
    """Refuse distances beyond the reach; where they cannot be seen, NaN for those that are."""
    distances = distance_range(positions)
    if distances is not None:
        check_distances(scheme, *distances)
        return None
    inside = jnp.zeros((1, scheme.left + scheme.right + 1), q.dtype)
    nan_at_ends = jnp.pad(inside, ((0, 0), (1, 1)), constant_values=jnp.nan)
    return Table(nan_at_ends, -scheme.left - 1)
