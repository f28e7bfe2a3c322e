"""What the schemes of a grid share: offsets of cells as one number, and cells that do not exist."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from relpos.checks import check_position_limits
from relpos.schemes import Scheme
from relpos_jax.kernels.positions import position_range
from relpos_jax.kernels.terms import Table
from relpos_jax.schemes.call import Call

__all__ = ["beyond", "by_offset"]


def by_offset(values: Float[Array, "H N"], height: int, width: int) -> Table:
    """A table whose rows are the offsets (dy, dx) of a grid, dy and then dx ascending.

    y * (2 width - 1) + x leaves room for every dx between two dy: differences of this number tell
    all offsets apart, in the order of the rows.
    """

    def number(cell: Int[Array, "*B L"]) -> Int[Array, "*B L"]:
        y, x = jnp.divmod(cell, width)
        return y * (2 * width - 1) + x

    return Table(values, (1 - height) * (2 * width - 1) + 1 - width, (number, number))


def beyond(scheme: Scheme, call: Call) -> tuple[Table, ...]:
    """Refuse positions off the grid; where they cannot be seen, NaN for every pair with one."""
    assert scheme.position_limits is not None
    lowest, highest = scheme.position_limits
    seen = position_range(call.positions)
    if seen is not None:
        check_position_limits(scheme, *seen)
        return ()

    def off(position: Int[Array, "*B L"], step: int) -> Int[Array, "*B L"]:
        return jnp.where((position < lowest) | (position > highest), step, 0)

    # Counted down for queries and up for keys: the distance is 0 only if both are on the grid.
    nan_if_off = jnp.array([[0.0, jnp.nan]], call.q.dtype)
    steps = (lambda position: off(position, -1), lambda position: off(position, 1))
    return (Table(nan_if_off, 0, steps),)
