"""Swin v2 (Liu et al., 2022): a small network from the offset between two cells to a bias.

    p              = y * width + x                       the cell in row y, column x
    c(d, n)        = sign(d) * log2(1 + 8 abs(d) / (n - 1)) / 3          0 where n is 1
    a(dy, dx)      = [c(-dy, n_rows), c(-dx, n_columns)]
    hidden(dy, dx) = max(0, a(dy, dx) @ hidden_kernel + hidden_bias)
    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]>
                   + 16 sigmoid(<hidden(yj - yi, xj - xi), output_kernel[h]>)

i is the query, j the key, (y, x) their cells, h the head, b the batch row. n_rows and n_columns are
those of the window, or of the window that the network was trained with, so that an offset keeps its
coordinate when the window grows. Positions are the numbers p of cells, 0 .. height * width - 1. The
network runs once per offset, never per pair.

Swin v2 also compares directions: its q and k have length 1 and its scale, at most 100, is learned
per head. That is no position and is left to the caller: normalise q and k, multiply q by the scale,
and pass scale=1.

In the table, mlp stands for `continuous_position_bias_mlp` (`cpb_mlp` in the authors' code).

| our name                           | Swin v2                                                    |
|------------------------------------|------------------------------------------------------------|
| `height`, `width`                  | `window_size`                                              |
| `pretrained_height`, `_width`      | `pretrained_window_size`; 0 there is None here             |
| `hidden`                           | 512                                                        |
| `hidden_kernel` [1, 2, hidden]     | `mlp.0.weight`, transposed                                 |
| `hidden_bias` [1, hidden]          | `mlp.0.bias`                                               |
| `output_kernel` [H, hidden]        | `mlp.2.weight`                                             |
| a(dy, dx), dy and dx ascending     | `relative_coords_table`, rows and columns reversed         |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from relpos.schemes.base import Parameter, Scheme, normal, require, zeros
from relpos.schemes.swin2d import check_grid

__all__ = ["SwinV2"]


@dataclass(frozen=True)
class SwinV2(Scheme):
    """A bias per head that a small network makes of 2-D offsets on a logarithmic scale.

    The formula and the names used elsewhere stand at the top of this module. The bias lies between
    0 and 16 and is added after the scaling.

    Attributes:
        height: Rows of a window, >= 1.
        width: Columns of a window, >= 1.
        hidden: Width of the network, >= 1.
        pretrained_height: Rows of the windows that the network was trained with, >= 2 where this
            window has as many; None: those of this window.
        pretrained_width: The same for columns. Both are given, or neither.

    Raises:
        SettingError: A side of a window or the network's width is no positive whole number, or only
            one side of the earlier window is given, or it has no two cells to measure by.

    Paper: Swin Transformer V2: Scaling Up Capacity and Resolution, https://arxiv.org/abs/2111.09883.

    Example:
        >>> [p.shape for p in SwinV2(height=8, width=8).parameters(num_heads=3, head_dim=32)]
        [(1, 2, 512), (1, 512), (3, 512)]
    """

    name: ClassVar[str] = "SwinV2"
    paper: ClassVar[str] = "Liu et al., 2022"
    url: ClassVar[str] = "https://arxiv.org/abs/2111.09883"
    used_by: ClassVar[tuple[str, ...]] = ("Swin v2", "Swin2SR")
    extrapolates: ClassVar[bool] = True
    translation_invariant: ClassVar[bool] = False

    height: int
    width: int
    hidden: int = 512
    pretrained_height: int | None = None
    pretrained_width: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_grid(self.name, self.height, self.width)
        require(
            self.hidden >= 1,
            "SwinV2.hidden is the width of the network",
            got=self.hidden,
            expected="an int >= 1",
        )
        require(
            (self.pretrained_height is None) == (self.pretrained_width is None),
            "SwinV2 takes both sides of the window that it was trained with",
            got=f"pretrained_height={self.pretrained_height}, "
            f"pretrained_width={self.pretrained_width}",
            expected="both or neither",
        )
        for side, cells, trained in (
            ("height", self.height, self.pretrained_height),
            ("width", self.width, self.pretrained_width),
        ):
            least = min(cells, 2)
            require(
                trained is None or trained >= least,
                f"SwinV2.pretrained_{side} is what offsets are measured by",
                got=trained,
                expected=f">= {least}",
            )

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """The network: kernels normal with std 0.02, `hidden_bias` zero.

        `hidden_kernel` [1, 2, hidden], `hidden_bias` [1, hidden], `output_kernel` [H, hidden].
        """
        m = self.hidden
        return (
            Parameter("hidden_kernel", ("shared", "features", "hidden"), (1, 2, m), normal(0.02)),
            Parameter("hidden_bias", ("shared", "hidden"), (1, m), zeros()),
            Parameter("output_kernel", ("heads", "hidden"), (num_heads, m), normal(0.02)),
        )

    @property
    def position_limits(self) -> tuple[int, int]:
        """The cells of the window."""
        return 0, self.height * self.width - 1

    def coordinates(self) -> NDArray[np.float64]:
        """a(dy, dx) for every offset, dy and then dx ascending: [(2 height - 1)(2 width - 1), 2].

        Example:
            >>> SwinV2(height=8, width=8).coordinates()[0].round(9).tolist()
            [1.056641667, 1.056641667]
        """
        rows = _logarithmic(self.height, self.pretrained_height)
        columns = _logarithmic(self.width, self.pretrained_width)
        return np.stack(np.meshgrid(rows, columns, indexing="ij"), -1).reshape(-1, 2)


def _logarithmic(cells: int, trained: int | None) -> NDArray[np.float64]:
    """c(-d) for d = 1 - cells .. cells - 1."""
    offset = -np.arange(1 - cells, cells)
    reach = max((cells if trained is None else trained) - 1, 1)
    logarithms: NDArray[np.float64] = np.log2(1 + 8 * np.abs(offset) / reach) / 3
    return np.sign(offset) * logarithms
