"""DeBERTa: the table's rows, projected to position keys and queries, then laid out by distance."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from relpos.distance import deberta_row_map
from relpos.schemes import DeBERTa
from relpos_torch.constants import constant
from relpos_torch.kernels.terms import Lowered, Product, Table, Terms
from relpos_torch.schemes.call import Call

__all__ = ["by_distance", "lower", "projected", "row_numbers", "table_rows"]


def lower(scheme: DeBERTa, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * (<q, k> + <q, K[row(j - i)]> + <k, Q[row(j - i)]>)."""
    rows = table_rows(scheme, params)
    query: tuple[Product, ...] = ()
    key: tuple[Product, ...] = ()
    if scheme.c2p:
        position_keys = by_distance(scheme, projected(rows, params, "key"))
        query = (Product(call.q, position_keys, call.scale),)
    if scheme.p2c:
        position_queries = by_distance(scheme, projected(rows, params, "query"))
        k = call.k.repeat_interleave(call.q.shape[1] // call.k.shape[1], 1)
        key = (Product(k, position_queries, call.scale),)
    return Lowered(call.q, call.k, Terms(call.scale, query=query, key=key))


def table_rows(scheme: DeBERTa, params: Mapping[str, Tensor]) -> Float[Tensor, "N E"]:
    """P: the rows of the table, after their layer norm if there is one."""
    rows = params["position_table"][0]
    if scheme.norm_eps is None:
        return rows
    scale, bias = params["position_norm_scale"][0], params["position_norm_bias"][0]
    return torch.nn.functional.layer_norm(rows, (scheme.width,), scale, bias, scheme.norm_eps)


def projected(
    rows: Float[Tensor, "N E"], params: Mapping[str, Tensor], side: str
) -> Float[Tensor, "H N d"]:
    """K or Q: the rows through the projection of every head."""
    vectors = rows @ params[f"position_{side}_kernel"]
    bias = params.get(f"position_{side}_bias")
    return vectors if bias is None else vectors + bias.unsqueeze(-2)


def by_distance(scheme: DeBERTa, by_row: Float[Tensor, "H N d"]) -> Table:
    """A vector per row, at every distance that has a row of its own."""
    if scheme.buckets is None:
        return Table(by_row, 1 - scheme.max_distance)
    first, rows = row_numbers(scheme.buckets, scheme.max_distance)
    return Table(by_row.index_select(-2, rows.to(by_row.device)), first)


@constant
def row_numbers(buckets: int, max_distance: int) -> tuple[int, Tensor]:
    """The first distance that is listed, and the row of each distance from there."""
    row_map = deberta_row_map(buckets, max_distance)
    return row_map.first, torch.tensor(row_map.rows, dtype=torch.long)
