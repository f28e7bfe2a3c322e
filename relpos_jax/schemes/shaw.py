"""Shaw: the tables are by distance already, and constant beyond their reach."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from relpos.checks import check_distances
from relpos.schemes import Shaw, ShawBoth
from relpos_jax.kernels.positions import distance_range
from relpos_jax.kernels.terms import Lowered, Product, Table, Terms
from relpos_jax.schemes.call import Call

__all__ = ["beyond", "lower"]


def lower(scheme: Shaw, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k + K[clip(j - i)]>, value = v + V[clip(j - i)]."""
    tables = {name: Table(values, -scheme.left) for name, values in params.items()}
    terms = Terms(
        call.scale,
        query=(Product(call.q, tables["key_table"], call.scale),) if scheme.keys else (),
        bias=() if scheme.clip else beyond(scheme, call),
        value_table=tables.get("value_table"),
    )
    return Lowered(call.q, call.k, terms)


def beyond(scheme: Shaw | ShawBoth, call: Call) -> tuple[Table, ...]:
    """Refuse distances beyond the reach; where they cannot be seen, NaN for those that are."""
    distances = distance_range(call.positions)
    if distances is not None:
        check_distances(scheme, *distances)
        return ()
    inside = jnp.zeros((1, scheme.left + scheme.right + 1), call.q.dtype)
    nan_at_ends = jnp.pad(inside, ((0, 0), (1, 1)), constant_values=jnp.nan)
    return (Table(nan_at_ends, -scheme.left - 1),)
