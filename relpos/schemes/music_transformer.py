"""Music Transformer (Huang et al., 2018): learned vectors for the keys up to the query.

    E(d)           = key_table[h, d + reach]      if -reach <= d <= 0
                   = key_table[h, 0], or 0        if d < -reach, as `beyond` says
                   = 0                            if d > 0
    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j] + E(j-i)>
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]

i is the query's position, j the key's, d = j - i, h the head, b the batch row. The scheme is meant
for causal attention; where later keys are read all the same, it adds nothing to their scores, and
no neighbour's vector. From `Shaw` it differs in that: Shaw has a vector for every later key too.
The paper's skewing is a way to compute this, in O(L d) memory, which the kernels here do for all.

| our name         | Music Transformer | Tensor2Tensor, Magenta                                  |
|------------------|-------------------|---------------------------------------------------------|
| `key_table`      | E^r               | `relative_embeddings`, the nearest key last             |
| `reach` + 1      | rows of E^r       | `max_relative_position`                                 |
| `per_head`       | yes               | not `heads_share_relative_embedding`                    |
| `beyond="zero"`  |                   | rows are padded with zeros                              |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from relpos.schemes.base import Parameter, Scheme, normal, require

__all__ = ["MusicTransformer"]


@dataclass(frozen=True)
class MusicTransformer(Scheme):
    """Learned relative key vectors for the keys up to the query.

    The formula and the names used elsewhere stand at the top of this module. The position part
    of the score is scaled together with the content.

    Attributes:
        reach: The farthest distance with a vector of its own, in positions, >= 0.
        per_head: One table per head; False shares one among all heads.
        beyond: What farther keys get: the `last` vector, or `zero`.

    Raises:
        SettingError: A setting is impossible.

    Paper: Music Transformer: Generating Music with Long-Term Structure,
    https://arxiv.org/abs/1809.04281.

    Example:
        >>> [p.shape for p in MusicTransformer(reach=511).parameters(8, 64)]
        [(8, 512, 64)]
    """

    name: ClassVar[str] = "MusicTransformer"
    paper: ClassVar[str] = "Huang et al., 2018"
    url: ClassVar[str] = "https://arxiv.org/abs/1809.04281"
    used_by: ClassVar[tuple[str, ...]] = ("Music Transformer",)
    extrapolates: ClassVar[bool] = False
    causal_only: ClassVar[bool] = True

    reach: int
    per_head: bool = True
    beyond: Literal["last", "zero"] = "last"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.reach >= 0,
            "MusicTransformer.reach counts positions",
            got=self.reach,
            expected="an int >= 0",
        )

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """`key_table` [1 or H, reach + 1, d], normal with std d ** -0.5."""
        axes = ("heads" if self.per_head else "shared", "distance", "head_dim")
        shape = (num_heads if self.per_head else 1, self.reach + 1, head_dim)
        return (Parameter("key_table", axes, shape, normal(head_dim**-0.5)),)
