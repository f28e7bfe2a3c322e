"""What the schemes of a grid share: offsets of cells as one number, and cells that do not exist."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from relpos.checks import check_position_limits
from relpos.schemes import Scheme
from relpos_torch.kernels.positions import position_range
from relpos_torch.kernels.terms import Table
from relpos_torch.schemes.call import Call

__all__ = ["beyond", "by_offset"]


def by_offset(values: Float[Tensor, "H N"], height: int, width: int) -> Table:
    """A table whose rows are the offsets (dy, dx) of a grid, dy and then dx ascending.

    y * (2 width - 1) + x leaves room for every dx between two dy: differences of this number tell
    all offsets apart, in the order of the rows.
    """

    def number(cell: Int[Tensor, "*B L"]) -> Int[Tensor, "*B L"]:
        return cell + cell // width * (width - 1)

    return Table(values, (1 - height) * (2 * width - 1) + 1 - width, (number, number))


def beyond(scheme: Scheme, call: Call) -> tuple[Table, ...]:
    """Refuse positions off the grid; where they cannot be seen, NaN for every pair with one."""
    assert scheme.position_limits is not None
    lowest, highest = scheme.position_limits
    seen = position_range(call.positions)
    if seen is not None:
        check_position_limits(scheme, *seen)
        return ()

    def off(position: Int[Tensor, "*B L"]) -> Int[Tensor, "*B L"]:
        return ((position < lowest) | (position > highest)).long()

    # Counted down for queries and up for keys: the distance is 0 only if both are on the grid.
    nan_if_off = torch.nn.functional.pad(call.q.new_zeros(1, 1), (0, 1), value=torch.nan)
    return (Table(nan_if_off, 0, (lambda position: -off(position), off)),)
