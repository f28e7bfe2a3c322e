"""Swin (Liu et al., 2021): one learned bias per head and offset between two cells of a window.

    p              = y * width + x                       the cell in row y, column x
    r(dy, dx)      = (dy + height - 1) * (2 width - 1) + dx + width - 1        a table row
    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]> + bias_table[h, r(yj - yi, xj - xi)]

i is the query, j the key, (y, x) their cells, h the head, b the batch row. Positions are the
numbers p of cells, 0 .. height * width - 1, and the default ones read a window row by row. A window
of `height` rows and `width` columns has (2 height - 1) * (2 width - 1) offsets, N.

| our name                      | Swin Transformer                                             |
|-------------------------------|--------------------------------------------------------------|
| `height`, `width`             | `window_size` Wh, Ww                                         |
| `bias_table` [H, N]           | `relative_position_bias_table` [N, H]                        |
| r of key minus query          | `relative_position_index` = N - 1 - r: query minus key       |
| row n of a head               | row N - 1 - n: the table is transposed and its rows reversed |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relpos.schemes.base import Parameter, Scheme, normal, require

__all__ = ["Swin2D", "check_grid"]


def check_grid(scheme: str, height: int, width: int) -> None:
    """Validate the settings that every scheme of a grid shares."""
    for side, cells in (("height", height), ("width", width)):
        require(cells >= 1, f"{scheme}.{side} counts cells", got=cells, expected="an int >= 1")


@dataclass(frozen=True)
class Swin2D(Scheme):
    """A learned scalar bias per head and 2-D offset in a window.

    The formula and the names used elsewhere stand at the top of this module. The bias is added
    after the scaling. What moves and masks windows (a shift, a padding) is the caller's: a window
    is a batch row.

    A window that is larger than its feature map shrinks to it, as Swin's last stages do: that is
    another scheme, `Swin2D(min(height, map height), min(width, map width))`, whose table is the
    middle of the larger one's (`relpos.weights.resize_tables`, method `geometric`). The larger
    scheme reads a part of its window at explicit positions; the default ones fill whole rows.

    Attributes:
        height: Rows of a window, >= 1.
        width: Columns of a window, >= 1.

    Raises:
        SettingError: A side of the window is no whole number of cells.

    Paper: Swin Transformer: Hierarchical Vision Transformer using Shifted Windows,
    https://arxiv.org/abs/2103.14030.

    Example:
        >>> Swin2D(height=7, width=7).parameters(num_heads=3, head_dim=32)[0].shape
        (3, 169)
    """

    name: ClassVar[str] = "Swin2D"
    paper: ClassVar[str] = "Liu et al., 2021"
    url: ClassVar[str] = "https://arxiv.org/abs/2103.14030"
    used_by: ClassVar[tuple[str, ...]] = ("Swin", "Donut", "MaskFormer")
    extrapolates: ClassVar[bool] = False
    translation_invariant: ClassVar[bool] = False

    height: int
    width: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_grid(self.name, self.height, self.width)

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """`bias_table` [H, (2 height - 1) * (2 width - 1)], normal with std 0.02.

        Swin's own draw is cut at +-2, a hundred standard deviations out: nothing is ever cut.
        """
        offsets = (2 * self.height - 1) * (2 * self.width - 1)
        return (Parameter("bias_table", ("heads", "distance"), (num_heads, offsets), normal(0.02)),)

    @property
    def position_limits(self) -> tuple[int, int]:
        """The cells of the window."""
        return 0, self.height * self.width - 1
