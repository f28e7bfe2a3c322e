"""Relative vectors inside a window, ZERO outside (VITS, Glow-TTS).

    K(d)           = key_table[h, d + left]     if -left <= d <= right, else 0
    V(d)           = value_table[h, d + left]   if -left <= d <= right, else 0
    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j] + K(j-i)>
    out[b,h,i]     = sum_j softmax(score)[i,j] * (v[b,h,j] + V(j-i))

i is the query's position, j the key's, h the head, b the batch row. Not the same as `Shaw`, which
repeats its last row outside: on a real VITS voice the two differ by more than the outputs' size.

| our name                  | VITS, Glow-TTS               |
|---------------------------|------------------------------|
| `left` = `right`          | `window_size`                |
| `key_table`               | `emb_rel_k` [1, 2w+1, d]     |
| `value_table`             | `emb_rel_v` [1, 2w+1, d]     |
| `per_head`                | not `heads_share`            |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relpos.schemes.base import Parameter, Scheme, normal
from relpos.schemes.shaw import check_reach, distance_tables

__all__ = ["Windowed"]


@dataclass(frozen=True)
class Windowed(Scheme):
    """Learned relative key and value vectors in a window, nothing outside it.

    The formula and the names used elsewhere stand at the top of this module. Attention itself
    still reaches every key: only the position vectors end at the window.

    Attributes:
        left: Reach of the window before the query, in positions, >= 0.
        right: Reach of the window after the query, in positions, >= 0.
        keys: Learn `key_table`, added to the keys.
        values: Learn `value_table`, added to the values.
        per_head: One table per head; False shares one among all heads.

    Raises:
        SettingError: A reach is negative, or neither keys nor values are wanted.

    Paper: Conditional Variational Autoencoder with Adversarial Learning for End-to-End
    Text-to-Speech (VITS), https://arxiv.org/abs/2106.06103.

    Example:
        >>> [p.name for p in Windowed(left=4, right=4).parameters(2, 96)]
        ['key_table', 'value_table']
    """

    name: ClassVar[str] = "Windowed"
    paper: ClassVar[str] = "Kim et al., 2021"
    url: ClassVar[str] = "https://arxiv.org/abs/2106.06103"
    used_by: ClassVar[tuple[str, ...]] = ("VITS", "MMS-TTS", "Piper", "Glow-TTS")
    extrapolates: ClassVar[bool] = False

    left: int
    right: int
    keys: bool = True
    values: bool = True
    per_head: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reach(self.name, self.left, self.right, self.keys, self.values)

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """`key_table` and `value_table`, each [1 or H, left + right + 1, d], std d ** -0.5."""
        tables = distance_tables(
            self.left + self.right + 1,
            num_heads,
            head_dim,
            keys=self.keys,
            values=self.values,
            per_head=self.per_head,
        )
        return tuple(
            Parameter(table.name, table.axes, table.shape, normal(head_dim**-0.5))
            for table in tables
        )
