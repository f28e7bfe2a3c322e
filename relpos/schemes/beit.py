"""BEiT (Bao et al., 2022): Swin's table, and three entries for a class token before the patches.

    p              = 1 + y * width + x                   the patch in row y, column x; 0: the class
    r(i, j)        = (dy + height - 1) * (2 width - 1) + dx + width - 1     from patch to patch
                   = M        the class reads a patch
                   = M + 1    a patch reads the class
                   = M + 2    the class reads itself
    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]> + bias_table[h, r(i, j)]

i is the query, j the key, dy = yj - yi and dx = xj - xi lead from one patch to another, h is the
head, b the batch row, and M = (2 height - 1) * (2 width - 1). Positions are the numbers p,
0 .. height * width: the default ones are the class token and then the patches row by row.

| our name                 | BEiT                                                             |
|--------------------------|------------------------------------------------------------------|
| `height`, `width`        | `window_size`, `patch_shape`                                     |
| `bias_table` [H, M + 3]  | `relative_position_bias_table` [M + 3, H]                        |
| row n < M of a head      | row M - 1 - n: query minus key there, key minus query here       |
| the last three rows      | the same three: "cls to token", "token to cls", "cls to cls"     |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relpos.schemes.base import Parameter, Scheme, zeros
from relpos.schemes.swin2d import check_grid

__all__ = ["BEiT"]


@dataclass(frozen=True)
class BEiT(Scheme):
    """A learned scalar bias per head and 2-D offset, and three that concern the class token.

    The formula and the names used elsewhere stand at the top of this module. The bias is added
    after the scaling.

    Attributes:
        height: Rows of patches, >= 1.
        width: Columns of patches, >= 1.

    Raises:
        SettingError: A side of the grid is no whole number of patches.

    Paper: BEiT: BERT Pre-Training of Image Transformers, https://arxiv.org/abs/2106.08254.

    Example:
        >>> BEiT(height=14, width=14).parameters(num_heads=12, head_dim=64)[0].shape
        (12, 732)
    """

    name: ClassVar[str] = "BEiT"
    paper: ClassVar[str] = "Bao et al., 2022"
    url: ClassVar[str] = "https://arxiv.org/abs/2106.08254"
    used_by: ClassVar[tuple[str, ...]] = ("BEiT", "BEiT v2", "data2vec vision", "DiT")
    extrapolates: ClassVar[bool] = False
    translation_invariant: ClassVar[bool] = False

    height: int
    width: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_grid(self.name, self.height, self.width)

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """`bias_table` [H, (2 height - 1) * (2 width - 1) + 3], zeros, as BEiT begins."""
        entries = (2 * self.height - 1) * (2 * self.width - 1) + 3
        return (Parameter("bias_table", ("heads", "distance"), (num_heads, entries), zeros()),)

    @property
    def position_limits(self) -> tuple[int, int]:
        """The class token and the patches."""
        return 0, self.height * self.width
