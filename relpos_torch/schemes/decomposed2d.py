"""Decomposed2D: a table by offset of rows and one by offset of columns, both for the queries."""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Int
from torch import Tensor

from relpos.schemes import Decomposed2D
from relpos_torch.kernels.terms import Lowered, Product, Table, Terms
from relpos_torch.schemes.call import Call
from relpos_torch.schemes.grid import beyond

__all__ = ["lower"]


def lower(scheme: Decomposed2D, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * <q, k> + s * <q, R[yj - yi] + C[xj - xi]>, s = scale if scaled, else 1."""

    def row(cell: Int[Tensor, "*B L"]) -> Int[Tensor, "*B L"]:
        return cell // scheme.width

    def column(cell: Int[Tensor, "*B L"]) -> Int[Tensor, "*B L"]:
        return cell % scheme.width

    rows = Table(params["row_table"], 1 - scheme.height, (row, row))
    columns = Table(params["column_table"], 1 - scheme.width, (column, column))
    factor = call.scale if scheme.scaled else 1.0
    products = tuple(Product(call.q, table, factor) for table in (rows, columns))
    terms = Terms(call.scale, query=products, bias=beyond(scheme, call))
    return Lowered(call.q, call.k, terms)
