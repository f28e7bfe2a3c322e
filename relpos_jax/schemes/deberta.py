"""DeBERTa: the table's rows, projected to position keys and queries, then laid out by distance."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float

from relpos.distance import deberta_row_map
from relpos.schemes import DeBERTa
from relpos_jax.kernels.terms import Lowered, Product, Table, Terms
from relpos_jax.schemes.call import Call

__all__ = ["by_distance", "lower", "projected", "row_numbers", "table_rows"]


def lower(scheme: DeBERTa, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * (<q, k> + <q, K[row(j - i)]> + <k, Q[row(j - i)]>)."""
    rows = table_rows(scheme, params)
    query: tuple[Product, ...] = ()
    key: tuple[Product, ...] = ()
    if scheme.c2p:
        position_keys = by_distance(scheme, projected(rows, params, "key"))
        query = (Product(call.q, position_keys, call.scale),)
    if scheme.p2c:
        position_queries = by_distance(scheme, projected(rows, params, "query"))
        per_group = call.q.shape[2] // call.k.shape[2]
        key = (Product(jnp.repeat(call.k, per_group, axis=2), position_queries, call.scale),)
    return Lowered(call.q, call.k, Terms(call.scale, query=query, key=key))


def table_rows(scheme: DeBERTa, params: Mapping[str, Array]) -> Float[Array, "N E"]:
    """P: the rows of the table, after their layer norm if there is one."""
    rows = params["position_table"][0]
    if scheme.norm_eps is None:
        return rows
    centred = rows - rows.mean(-1, keepdims=True)
    spread = jnp.sqrt(jnp.square(centred).mean(-1, keepdims=True) + scheme.norm_eps)
    return centred / spread * params["position_norm_scale"] + params["position_norm_bias"]


def projected(
    rows: Float[Array, "N E"], params: Mapping[str, Array], side: str
) -> Float[Array, "H N d"]:
    """K or Q: the rows through the projection of every head."""
    vectors = jnp.einsum("ne,hed->hnd", rows, params[f"position_{side}_kernel"])
    bias = params.get(f"position_{side}_bias")
    return vectors if bias is None else vectors + bias[:, None]


def by_distance(scheme: DeBERTa, by_row: Float[Array, "H N d"]) -> Table:
    """A vector per row, at every distance that has a row of its own."""
    if scheme.buckets is None:
        return Table(by_row, 1 - scheme.max_distance)
    first, rows = row_numbers(scheme.buckets, scheme.max_distance)
    return Table(jnp.take(by_row, rows, axis=1, mode="clip"), first)


def row_numbers(buckets: int, max_distance: int) -> tuple[int, Array]:
    """The first distance that is listed, and the row of each distance from there."""
    row_map = deberta_row_map(buckets, max_distance)
    return row_map.first, jnp.asarray(row_map.rows)
