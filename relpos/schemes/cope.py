"""CoPE (Golovneva et al., 2024): a key stands as far away as the query counts keys from it on.

    g[b,h,i,m]     = sigmoid(scale * <q[b,h,i], k[b,h,m]>)      for the keys m that i may attend to
    p[b,h,i,j]     = min(N - 1, sum of g[b,h,i,m] over the keys m that stand where j does or later)
    n, w           = floor(p), p - floor(p)
    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]>
                     + (1 - w) * <q[b,h,i], e[h,n]> + w * <q[b,h,i], e[h,n+1]>
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]

e is `position_embedding`, g says how much of a position key m counts, and p is the place of key j,
in counted positions from the query backwards. It is meant for causal attention, though nothing
refuses another: where a query may attend to keys after it, they count too. What `relative_scores`
gives has no mask, so there every key counts.

Where p is a whole number its slope is that of the piece to its right, and so 0 from N - 1 on.

The products with e are not scaled, as in the paper's listing. `scaled=True` multiplies them by
`scale` too, which is what the authors' training code does unless told `cope_nodiv`. The gates read
the scaled content in both.

| our name                         | authors' code                     | x-transformers          |
|----------------------------------|-----------------------------------|-------------------------|
| `position_embedding` [1, N, d]   | `pos_emb` [1, d, N]               | `cope.pos_emb` [N, d]   |
| `num_positions` N                | `npos_max`, `cope_npos`           | `cope_max_pos`          |
| `scaled`                         | `not cope_nodiv`                  | False                   |
| `per_head`                       | False                             | False                   |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relpos.schemes.base import Parameter, Scheme, require, zeros

__all__ = ["CoPE"]


@dataclass(frozen=True)
class CoPE(Scheme):
    """Places counted by the content, with a learned vector for each whole place.

    The formula and the names used elsewhere stand at the top of this module. A place depends on a
    query's whole row of scores, which only the kernel `dense` has at hand.

    Attributes:
        num_positions: Rows of the table, N >= 2: the places 0 .. N - 1. Whatever counts for more
            stands at N - 1.
        per_head: One table per head; False shares one among all heads.
        scaled: Scale the products with the table as the content is scaled.

    Raises:
        SettingError: There are fewer than two positions.

    Paper: Contextual Position Encoding: Learning to Count What's Important,
    https://arxiv.org/abs/2405.18719.

    Example:
        >>> [p.shape for p in CoPE(num_positions=64).parameters(num_heads=4, head_dim=16)]
        [(1, 64, 16)]
    """

    name: ClassVar[str] = "CoPE"
    paper: ClassVar[str] = "Golovneva et al., 2024"
    url: ClassVar[str] = "https://arxiv.org/abs/2405.18719"
    used_by: ClassVar[tuple[str, ...]] = ()
    extrapolates: ClassVar[bool] = True
    causal_only: ClassVar[bool] = True
    dense_only: ClassVar[bool] = True

    num_positions: int
    per_head: bool = False
    scaled: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.num_positions >= 2,
            "CoPE.num_positions counts places to interpolate between",
            got=self.num_positions,
            expected=">= 2",
        )

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """`position_embedding` [1 or H, N, d], zeros."""
        axes = ("heads" if self.per_head else "shared", "distance", "head_dim")
        shape = (num_heads if self.per_head else 1, self.num_positions, head_dim)
        return (Parameter("position_embedding", axes, shape, zeros()),)
