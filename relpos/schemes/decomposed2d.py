"""A vector per offset of rows and one per offset of columns (BoTNet, MViT v2, ViTDet, SAM).

    p              = y * width + x                       the cell in row y, column x
    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]>
                   + s * <q[b,h,i], row_table[h, yj - yi + height - 1]
                                  + column_table[h, xj - xi + width - 1]>
    s              = scale if `scaled`, else 1

i is the query, j the key, (y, x) their cells, h the head, b the batch row. Positions are the
numbers p of cells, 0 .. height * width - 1, and the default ones read the grid row by row.

Tokens of a coarser grid (MViT pools keys, queries or both) stand at the first of the cells that
they cover: `pooled_positions` gives their numbers, to be passed as explicit positions. The grid of
the scheme is the finer one, on each axis.

| our name                           | SAM, ViTDet, MViT v2       | BoTNet                   |
|------------------------------------|----------------------------|--------------------------|
| `row_table` [1, 2 height - 1, d]   | `rel_pos_h`, rows reversed | `rel_height`, same order |
| `column_table` [1, 2 width - 1, d] | `rel_pos_w`, rows reversed | `rel_width`, same order  |
| `scaled`                           | False: q before scaling    | True: q after it         |
| `per_head`                         | False                      | False                    |

With keys pooled s to 1, MViT counts its rows from the last key: our row n is its row
2 height - 1 - s - n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from relpos.schemes.base import Parameter, Scheme, normal, require
from relpos.schemes.swin2d import check_grid

__all__ = ["Decomposed2D"]


@dataclass(frozen=True)
class Decomposed2D(Scheme):
    """Learned vectors per offset of rows and of columns, both multiplied by the query.

    The formula and the names used elsewhere stand at the top of this module.

    Attributes:
        height: Rows of the grid, >= 1.
        width: Columns of the grid, >= 1.
        scaled: The position part is scaled together with the content; False adds it after the
            scaling.
        per_head: One pair of tables per head; False shares one among all heads.

    Raises:
        SettingError: A side of the grid is no whole number of cells.

    Papers: Bottleneck Transformers for Visual Recognition, https://arxiv.org/abs/2101.11605;
    MViTv2: Improved Multiscale Vision Transformers for Classification and Detection,
    https://arxiv.org/abs/2112.01526; Segment Anything, https://arxiv.org/abs/2304.02643.

    Example:
        >>> [p.shape for p in Decomposed2D(height=14, width=14).parameters(12, 64)]
        [(1, 27, 64), (1, 27, 64)]
    """

    name: ClassVar[str] = "Decomposed2D"
    paper: ClassVar[str] = "Srinivas et al., 2021"
    url: ClassVar[str] = "https://arxiv.org/abs/2101.11605"
    used_by: ClassVar[tuple[str, ...]] = ("SAM", "ViTDet", "MViT v2", "BoTNet")
    extrapolates: ClassVar[bool] = False
    translation_invariant: ClassVar[bool] = False

    height: int
    width: int
    scaled: bool = False
    per_head: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_grid(self.name, self.height, self.width)

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """`row_table` and `column_table`, [1 or H, 2 height - 1 or 2 width - 1, d], std 0.02."""
        axes = ("heads" if self.per_head else "shared", "distance", "head_dim")
        first = num_heads if self.per_head else 1
        return tuple(
            Parameter(name, axes, (first, 2 * cells - 1, head_dim), normal(0.02))
            for name, cells in (("row_table", self.height), ("column_table", self.width))
        )

    @property
    def position_limits(self) -> tuple[int, int]:
        """The cells of the grid."""
        return 0, self.height * self.width - 1

    def pooled_positions(self, height: int, width: int) -> NDArray[np.int64]:
        """Where the tokens of a coarser grid stand, row by row: [height * width].

        Args:
            height: Rows of the coarser grid; divides the scheme's own.
            width: Columns of the coarser grid; divides the scheme's own.

        Raises:
            SettingError: The coarser grid does not divide the finer one.

        Example:
            >>> Decomposed2D(height=4, width=6).pooled_positions(2, 3).tolist()
            [0, 2, 4, 12, 14, 16]
        """
        for side, cells, coarse in (("height", self.height, height), ("width", self.width, width)):
            require(
                coarse >= 1 and cells % coarse == 0,
                f"a coarser grid covers whole cells along its {side}",
                got=coarse,
                expected=f"a divisor of {cells}",
            )
        rows = np.arange(0, self.height, self.height // height)
        columns = np.arange(0, self.width, self.width // width)
        return (rows[:, None] * self.width + columns).reshape(-1)
