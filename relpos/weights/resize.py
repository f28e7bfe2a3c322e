"""Tables of one grid for another: interpolated over offsets, on request and never by itself.

    table'[d'] = sum_d weight[d', d] * table[d]            along each axis of offsets
    d = 1 - n .. n - 1,  d' = 1 - n' .. n' - 1             of n and n' cells

The weights depend on the method:

* `linear`, `bicubic`: the 2 n - 1 rows are stretched evenly to 2 n' - 1, as an image of so many
  pixels (bicubic by Keys' kernel with a = -0.75); beyond the ends the end row is repeated. SAM's
  tables are resized by the first and Swin's by the second.
* `geometric`: offset d is taken to lie at +-(1 + r + ... + r**(abs(d) - 1)), with the ratio r >= 1
  that puts the farthest old offset where the farthest new one is, and new offsets are read linearly
  between. Near offsets so keep their values, where stretching would move them all, and a smaller
  grid keeps the offsets that it has. BEiT's own fine-tuning places offsets so.

An axis whose length stays is left as it is, bit for bit. What stands beside the offsets (the class
token of BEiT) is carried over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from relpos.checks import check_params
from relpos.schemes.base import require
from relpos.schemes.beit import BEiT
from relpos.schemes.decomposed2d import Decomposed2D
from relpos.schemes.swin2d import Swin2D

__all__ = ["Method", "resize_tables"]

Method = Literal["linear", "bicubic", "geometric"]
Grid = Swin2D | BEiT | Decomposed2D
Floats = NDArray[np.floating]


def resize_tables(
    tables: Mapping[str, Floats], old: Grid, new: Grid, method: Method
) -> dict[str, Floats]:
    """The parameters of a grid's scheme, for a grid of another height and width.

    Args:
        tables: The parameters, named and shaped as `old.parameters(H, d)` says.
        old: The scheme that they belong to.
        new: The same scheme with another `height` or `width`.
        method: How offsets are interpolated; the top of this module says which projects use which.

    Returns:
        The parameters for `new`, of the same names and dtypes, computed in float64.

    Raises:
        SettingError: The schemes differ in more than height and width, or have no tables to resize
            (`SwinV2` takes `pretrained_height` and `pretrained_width` instead), or the method is
            unknown.
        ShapeError: The tables are not exactly the old scheme's.

    Example:
        >>> table = {"bias_table": np.arange(9.0)[None]}
        >>> resize_tables(table, Swin2D(2, 2), Swin2D(2, 3), "linear")["bias_table"].reshape(3, 5)
        array([[0. , 0.4, 1. , 1.6, 2. ],
               [3. , 3.4, 4. , 4.6, 5. ],
               [6. , 6.4, 7. , 7.6, 8. ]])
    """
    same = isinstance(old, Grid) and isinstance(new, type(old))
    require(
        same and replace(old, height=new.height, width=new.width) == new,
        "tables are resized between grids of one scheme: Swin2D, BEiT or Decomposed2D",
        got=f"{old} and {new}",
        expected="other heights and widths, and nothing else; SwinV2 takes pretrained_height and "
        "pretrained_width instead",
    )
    require(
        method in get_args(Method),
        "a method of interpolation must be known by name",
        got=repr(method),
        expected="one of " + ", ".join(get_args(Method)),
    )
    shapes = {name: table.shape for name, table in tables.items()}
    first = next(iter(shapes.values()), ()) or (1,)
    real = all(table.dtype.kind not in "biuc" for table in tables.values())
    check_params(old.parameters(first[0], first[-1]), shapes, real)
    return {name: _resized(name, table, old, new, method) for name, table in tables.items()}


def _resized(name: str, table: Floats, old: Grid, new: Grid, method: Method) -> Floats:
    if isinstance(old, Decomposed2D):
        side = "height" if name == "row_table" else "width"
        return _along(table, 1, getattr(old, side), getattr(new, side), method)
    shape = 2 * old.height - 1, 2 * old.width - 1
    offsets, beside = np.split(table, [shape[0] * shape[1]], axis=1)
    grid = offsets.reshape(-1, *shape)
    grid = _along(grid, 1, old.height, new.height, method)
    grid = _along(grid, 2, old.width, new.width, method)
    return np.concatenate([grid.reshape(len(table), -1), beside], axis=1)


def _along(table: Floats, axis: int, old: int, new: int, method: Method) -> Floats:
    """The table with one axis of offsets resized from `old` cells to `new` ones."""
    if old == new:
        return table
    weights = _geometric(old, new) if method == "geometric" else _stretched(old, new, method)
    moved = np.moveaxis(table.astype(np.float64), axis, 0)
    resized = np.moveaxis(np.tensordot(weights, moved, axes=1), 0, axis)
    return resized.astype(table.dtype)


def _stretched(old: int, new: int, method: Method) -> NDArray[np.float64]:
    """The weight of each old row in each new one, where rows are pixels of an image."""
    rows, wanted = 2 * old - 1, 2 * new - 1
    center = (np.arange(wanted) + 0.5) * rows / wanted - 0.5
    below = np.floor(center).astype(int)
    weights = np.zeros((wanted, rows))
    for step in (0, 1) if method == "linear" else (-1, 0, 1, 2):
        away = np.abs(center - below - step)
        share = 1 - away if method == "linear" else _keys(away)
        np.add.at(weights, (np.arange(wanted), np.clip(below + step, 0, rows - 1)), share)
    return weights


def _keys(away: NDArray[np.float64], a: float = -0.75) -> NDArray[np.float64]:
    """The kernel of Keys (1981) at distances from 0 to 2."""
    near = ((a + 2) * away - (a + 3)) * away**2 + 1
    far = a * (((away - 5) * away + 8) * away - 4)
    return np.where(away <= 1, near, far)


def _geometric(old: int, new: int) -> NDArray[np.float64]:
    """The weight of each old row in each new one, where old offsets lie on a geometric series."""
    ratio, low, high = 1.0, 1.0, float(new)
    while old < new and low < (ratio := (low + high) / 2) < high:
        far = (ratio ** np.arange(old - 1)).sum()
        low, high = (ratio, high) if far < new - 1 else (low, ratio)
    reach = np.concatenate([[0.0], np.cumsum(ratio ** np.arange(old - 1))])
    places = np.concatenate([-reach[:0:-1], reach])
    wanted = np.arange(1 - new, new)
    return np.stack([np.interp(wanted, places, row) for row in np.eye(len(places))], axis=1)
