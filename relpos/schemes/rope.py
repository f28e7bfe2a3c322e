"""Rotary position embedding (Su et al., 2021): q and k are rotated by their positions.

    f_m            = base ** (-2m / r)                                  m = 0 .. r/2 - 1
    R(p) x         : each pair (x_a, x_b) of number m becomes
                     (x_a cos(p f_m) - x_b sin(p f_m),  x_a sin(p f_m) + x_b cos(p f_m))
    score[b,h,i,j] = scale * <R(i) q[b,h,i], R(j) k[b,h,j]>            depends on j - i alone
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]

p is a position, r = `rotary_dim` the rotated width; channels r .. d-1 pass unchanged. Pair m is
(m, m + r/2) in the layout `half` and (2m, 2m + 1) in the layout `interleaved`.

| our name               | elsewhere                                                            |
|------------------------|----------------------------------------------------------------------|
| layout `half`          | transformers `rotate_half`, GPT-NeoX, Llama in transformers          |
| layout `interleaved`   | the paper, Meta's Llama, GPT-J, x-transformers, ONNX `interleaved=1` |
| `rotary_dim`           | `rotary_pct * d`, `partial_rotary_factor * d`                        |
| `base`                 | `theta`, `rope_theta`, `rotary_emb_base`                             |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from relpos.schemes.base import Parameter, Scheme, require

__all__ = ["RoPE"]


@dataclass(frozen=True)
class RoPE(Scheme):
    """Rotation of query and key channel pairs by angles proportional to position.

    The formula and the names used elsewhere stand at the top of this module.

    Attributes:
        layout: Which channels form a pair: `half` or `interleaved`. Weights trained with one are
            wrong under the other; there is no default that is safe to guess, so it is required.
        rotary_dim: Channels that are rotated, from the first; even. None rotates all.
        base: Base of the geometric sequence of frequencies, > 1. Angles are in radians per
            position.

    Raises:
        SettingError: A setting is impossible, alone or for the layer's head width.

    Paper: RoFormer: Enhanced Transformer with Rotary Position Embedding,
    https://arxiv.org/abs/2104.09864.

    Example:
        >>> RoPE("half", rotary_dim=8).rotated(head_dim=32)
        8
    """

    name: ClassVar[str] = "RoPE"
    paper: ClassVar[str] = "Su et al., 2021"
    url: ClassVar[str] = "https://arxiv.org/abs/2104.09864"
    used_by: ClassVar[tuple[str, ...]] = ("Llama", "Mistral", "Qwen", "GPT-NeoX", "GPT-J")
    extrapolates: ClassVar[bool] = False

    layout: Literal["half", "interleaved"]
    rotary_dim: int | None = None
    base: float = 10000.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.rotary_dim is None or (self.rotary_dim >= 2 and self.rotary_dim % 2 == 0),
            "RoPE.rotary_dim must hold whole pairs",
            got=self.rotary_dim,
            expected="an even number >= 2, or None for the whole head",
        )
        require(
            math.isfinite(self.base) and self.base > 1.0,
            "RoPE.base must give falling frequencies",
            got=self.base,
            expected="a finite number > 1",
        )

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """None: the frequencies are fixed."""
        return ()

    def rotated(self, head_dim: int) -> int:
        """The number of rotated channels in a head of width `head_dim`."""
        return head_dim if self.rotary_dim is None else self.rotary_dim

    def check_head_dim(self, head_dim: int) -> None:
        """The rotated channels must fit the head and form pairs."""
        rotated = self.rotated(head_dim)
        require(
            rotated <= head_dim and rotated % 2 == 0,
            "RoPE rotates whole pairs inside the head",
            got=f"head_dim={head_dim}, rotary_dim={self.rotary_dim}",
            expected="rotary_dim <= head_dim, and an even head_dim if rotary_dim is None",
        )
