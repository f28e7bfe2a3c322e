"""Decomposed2D: a table by offset of rows and one by offset of columns, both for the queries."""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Array, Int

from relpos.schemes import Decomposed2D
from relpos_jax.kernels.terms import Lowered, Product, Table, Terms
from relpos_jax.schemes.call import Call
from relpos_jax.schemes.grid import beyond

__all__ = ["lower"]


def lower(scheme: Decomposed2D, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k> + s * <q, R[yj - yi] + C[xj - xi]>, s = scale if scaled, else 1."""

    def row(cell: Int[Array, "*B L"]) -> Int[Array, "*B L"]:
        return cell // scheme.width

    def column(cell: Int[Array, "*B L"]) -> Int[Array, "*B L"]:
        return cell % scheme.width

    factor = call.scale if scheme.scaled else 1.0
    by_row = Table(params["row_table"], 1 - scheme.height, (row, row))
    by_column = Table(params["column_table"], 1 - scheme.width, (column, column))
    terms = Terms(
        call.scale,
        query=(Product(call.q, by_row, factor), Product(call.q, by_column, factor)),
        bias=beyond(scheme, call),
    )
    return Lowered(call.q, call.k, terms)
