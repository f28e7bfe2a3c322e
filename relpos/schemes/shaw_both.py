"""Vectors per distance for queries and for keys, from one table (Huang et al., 2020; BERT).

    r(d)           = clip(d, -left, right) + left                          a table row
    score[b,h,i,j] = scale * (<q[b,h,i], k[b,h,j]> + <q[b,h,i], key_table[h, r(j-i)]>
                              + <k[b,h,j], key_table[h, r(j-i)]>)
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]

i is the query's position, j the key's, d = j - i their distance, h the head, b the batch row.
BERT's `relative_key` has the first two products alone: that is `Shaw` with `values=False`.

| our name                  | Huang et al. | BERT in transformers                             |
|---------------------------|--------------|--------------------------------------------------|
| this scheme               | method 4     | `position_embedding_type` `relative_key_query`   |
| `key_table`               | a            | `distance_embedding` [2L-1, d]                   |
| `left` = `right`          | k            | `max_position_embeddings - 1`                    |
| d = j - i, ascending rows | j - i        | i - j: rows reversed                             |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relpos.schemes.base import Parameter, Scheme
from relpos.schemes.shaw import check_reach, distance_tables

__all__ = ["ShawBoth"]


@dataclass(frozen=True)
class ShawBoth(Scheme):
    """Learned vectors per distance that meet the query and the key, clipped beyond a reach.

    The formula and the names used elsewhere stand at the top of this module. The position parts of
    the score are scaled together with the content.

    Attributes:
        left: Reach to keys before the query, in positions, >= 0. A full-length table for inputs
            of length L is `left = right = L - 1`.
        right: Reach to keys after the query, in positions, >= 0.
        per_head: One table per head; False shares one among all heads.
        clip: Distances beyond the reach read the last row. False makes them an error instead
            (masked pairs count too), or NaN where compiled code cannot see explicit positions.

    Raises:
        SettingError: A reach is negative.

    Paper: Improve Transformer Models with Better Relative Position Embeddings,
    https://arxiv.org/abs/2009.13658.

    Example:
        >>> [p.shape for p in ShawBoth(left=511, right=511).parameters(12, 64)]
        [(1, 1023, 64)]
    """

    name: ClassVar[str] = "ShawBoth"
    paper: ClassVar[str] = "Huang et al., 2020"
    url: ClassVar[str] = "https://arxiv.org/abs/2009.13658"
    used_by: ClassVar[tuple[str, ...]] = ("BERT relative_key_query",)
    extrapolates: ClassVar[bool] = False

    left: int
    right: int
    per_head: bool = False
    clip: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reach(self.name, self.left, self.right, keys=True, values=False)

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """`key_table` [1 or H, left + right + 1, d], Glorot uniform."""
        return distance_tables(
            self.left + self.right + 1,
            num_heads,
            head_dim,
            keys=True,
            values=False,
            per_head=self.per_head,
        )

    @property
    def limits(self) -> tuple[int, int] | None:
        """(-left, right) when the table may not clip."""
        return None if self.clip else (-self.left, self.right)
