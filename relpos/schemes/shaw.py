"""Shaw et al. (2018): learned vectors for keys and values, clipped at a reach.

    r(d)           = clip(d, -left, right) + left                          a table row
    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j] + key_table[h, r(j-i)]>
    out[b,h,i]     = sum_j softmax(score)[i,j] * (v[b,h,j] + value_table[h, r(j-i)])

i is the query's position, j the key's, d = j - i their distance, h the head, b the batch row.
BERT's `relative_key` is this scheme with `values=False`, its `relative_key_query` is `ShawBoth`.

| our name                  | Shaw et al. | elsewhere                                         |
|---------------------------|-------------|---------------------------------------------------|
| `left`, `right`           | k           | `max_relative_position`; w2v-BERT 2.0: 64 and 8   |
| `key_table`               | w^K         | `distance_embedding`, `relative_keys_embeddings`  |
| `value_table`             | w^V         | `relative_values_embeddings`                      |
| d = j - i, ascending rows | j - i       | BERT `relative_key` stores i - j: rows reversed   |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relpos.schemes.base import Parameter, Scheme, glorot, require

__all__ = ["Shaw", "check_reach", "distance_tables"]


def check_reach(scheme: str, left: int, right: int, keys: bool, values: bool) -> None:
    """Validate the settings that every scheme with a table per distance shares."""
    for side, reach in (("left", left), ("right", right)):
        require(reach >= 0, f"{scheme}.{side} counts positions", got=reach, expected="an int >= 0")
    require(
        keys or values,
        f"{scheme} needs a table for keys, values or both",
        got="keys=False, values=False",
        expected="at least one of them True (or NoPosition())",
    )


def distance_tables(
    num_rows: int, num_heads: int, head_dim: int, *, keys: bool, values: bool, per_head: bool
) -> tuple[Parameter, ...]:
    """The tables [1 or H, N, d] of a scheme that learns one vector per distance."""
    axes = ("heads" if per_head else "shared", "distance", "head_dim")
    shape = (num_heads if per_head else 1, num_rows, head_dim)
    names = [name for name, wanted in (("key_table", keys), ("value_table", values)) if wanted]
    return tuple(Parameter(name, axes, shape, glorot(num_rows, head_dim)) for name in names)


@dataclass(frozen=True)
class Shaw(Scheme):
    """Learned relative key and value vectors, clipped beyond a reach.

    The formula and the names used elsewhere stand at the top of this module. The position part
    of the score is scaled together with the content.

    Attributes:
        left: Reach to keys before the query, in positions, >= 0. A full-length table for inputs
            of length L is `left = right = L - 1`.
        right: Reach to keys after the query, in positions, >= 0.
        keys: Learn `key_table`, added to the keys.
        values: Learn `value_table`, added to the values.
        per_head: One table per head; False shares one among all heads.
        clip: Distances beyond the reach read the last row. False makes them an error instead
            (masked pairs count too), or NaN where compiled code cannot see explicit positions.

    Raises:
        SettingError: A reach is negative, or neither keys nor values are wanted.

    Paper: Self-Attention with Relative Position Representations,
    https://arxiv.org/abs/1803.02155.

    Example:
        >>> [p.shape for p in Shaw(left=64, right=8, values=False).parameters(4, 16)]
        [(1, 73, 16)]
    """

    name: ClassVar[str] = "Shaw"
    paper: ClassVar[str] = "Shaw et al., 2018"
    url: ClassVar[str] = "https://arxiv.org/abs/1803.02155"
    used_by: ClassVar[tuple[str, ...]] = ("w2v-BERT 2.0", "SeamlessM4T v2")
    extrapolates: ClassVar[bool] = False

    left: int
    right: int
    keys: bool = True
    values: bool = True
    per_head: bool = False
    clip: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reach(self.name, self.left, self.right, self.keys, self.values)

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """`key_table` and `value_table`, each [1 or H, left + right + 1, d], Glorot uniform."""
        return distance_tables(
            self.left + self.right + 1,
            num_heads,
            head_dim,
            keys=self.keys,
            values=self.values,
            per_head=self.per_head,
        )

    @property
    def limits(self) -> tuple[int, int] | None:
        """(-left, right) when the table may not clip."""
        return None if self.clip else (-self.left, self.right)
