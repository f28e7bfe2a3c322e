"""Rotary position embedding (Su et al., 2021): q and k are rotated by their positions.

    f_m            = base ** (-2m / r)                                  m = 0 .. r/2 - 1
    R(p) x         : each pair (x_a, x_b) of number m becomes
                     (x_a cos(p f_m) - x_b sin(p f_m),  x_a sin(p f_m) + x_b cos(p f_m))
    score[b,h,i,j] = scale * <R(i) q[b,h,i], R(j) k[b,h,j]>            depends on j - i alone
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]

p is a position, r = `rotary_dim` the rotated width; channels r .. d-1 pass unchanged. Pair m is
(m, m + r/2) in the layout `half` and (2m, 2m + 1) in the layout `interleaved`. With
`partial="proportional"` pairs and frequencies are those of the whole head, r = d above, and all but
the first rotary_dim/2 frequencies are 0. `scaling` changes the frequencies, and some kinds multiply
all cosines and sines by a factor: see `relpos.schemes.rope_scaling`. `axes` lets pairs follow
different axes of positions that have several: see `relpos.schemes.rope_axes`.

| our name               | elsewhere                                                            |
|------------------------|----------------------------------------------------------------------|
| layout `half`          | transformers `rotate_half`, GPT-NeoX, Llama in transformers          |
| layout `interleaved`   | the paper, Meta's Llama, GPT-J, x-transformers, ONNX `interleaved=1` |
| `rotary_dim`           | `rotary_pct * d`, `partial_rotary_factor * d`                        |
| partial `proportional` | `rope_type` proportional, Gemma 4; `slice` is everyone else's        |
| `base`                 | `theta`, `rope_theta`, `rotary_emb_base`                             |
| `scaling`              | `rope_scaling`, `rope_parameters`                                    |
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Literal

from relpos.rotation import decimals, geometric
from relpos.schemes.base import Parameter, Scheme, require
from relpos.schemes.rope_axes import Axial, Sections
from relpos.schemes.rope_scaling import (
    DynamicNTK,
    LinearScaling,
    Llama3Scaling,
    LongRoPE,
    NTKScaling,
    YaRN,
)

__all__ = ["RoPE", "check_rotation", "check_rotation_fits"]


def check_rotation(scheme: str, rotary_dim: int | None, base: float) -> None:
    """Validate the settings that every scheme which rotates shares."""
    require(
        rotary_dim is None or (rotary_dim >= 2 and rotary_dim % 2 == 0),
        f"{scheme}.rotary_dim must hold whole pairs",
        got=rotary_dim,
        expected="an even number >= 2, or None for the whole head",
    )
    require(
        math.isfinite(base) and base > 1.0,
        f"{scheme}.base must give falling frequencies",
        got=base,
        expected="a finite number > 1",
    )


def check_rotation_fits(scheme: str, rotary_dim: int | None, head_dim: int) -> None:
    """The rotated channels must fit the head and form pairs."""
    rotated = head_dim if rotary_dim is None else rotary_dim
    require(
        rotated <= head_dim and rotated % 2 == 0,
        f"{scheme} rotates whole pairs inside the head",
        got=f"head_dim={head_dim}, rotary_dim={rotary_dim}",
        expected="rotary_dim <= head_dim, and an even head_dim if rotary_dim is None",
    )


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
        partial: Of which width `rotary_dim` takes a part: `slice` pairs the first rotary_dim
            channels among themselves; `proportional` pairs the whole head, and rotates the first
            rotary_dim/2 of its pairs.
        scaling: Other frequencies for longer inputs: `LinearScaling`, `NTKScaling`, `DynamicNTK`,
            `YaRN`, `LongRoPE` or `Llama3Scaling`, with settings of their own.
        axes: Positions with several axes, such as those of an image: `Sections` or `Axial`, which
            say what pairs follow which axis. None: positions have one axis.

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
    content_only: ClassVar[bool] = True

    layout: Literal["half", "interleaved"]
    rotary_dim: int | None = None
    base: float = 10000.0
    partial: Literal["slice", "proportional"] = "slice"
    scaling: LinearScaling | NTKScaling | DynamicNTK | YaRN | LongRoPE | Llama3Scaling | None = None
    axes: Sections | Axial | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rotation(self.name, self.rotary_dim, self.base)
        require(
            self.partial == "slice" or self.rotary_dim is not None,
            "RoPE.partial says how a part of the head is rotated",
            got=f"partial={self.partial!r} for the whole head",
            expected="rotary_dim=..., or partial left out",
        )

        require(
            not isinstance(self.axes, Axial) or self.partial == "slice",
            "RoPE with axial frequencies rotates all of their pairs",
            got="partial='proportional' beside Axial",
            expected="partial='slice', or Sections",
        )

    @property
    def position_axes(self) -> int:
        """How many axes positions may have."""
        return 1 if self.axes is None else len(self.axes.sizes)

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """None: the frequencies are fixed."""
        return ()

    def rotated(self, head_dim: int) -> int:
        """The number of channels that stand in pairs, in a head of width `head_dim`."""
        whole = self.rotary_dim is None or self.partial == "proportional"
        return head_dim if whole else self.rotary_dim or 0

    def frequencies(self, head_dim: int, length: int = 0) -> tuple[float, ...]:
        """f_m of each pair, radians per position, rounded once to float64.

        Args:
            head_dim: d.
            length: Of the call, in positions; `DynamicNTK` and `LongRoPE` alone depend on it.
        """
        return _frequencies(self, head_dim, length)

    def check_head_dim(self, head_dim: int) -> None:
        """The rotated channels must fit the head and form pairs."""
        check_rotation_fits(self.name, self.rotary_dim, head_dim)
        rotated = self.rotated(head_dim)
        require(
            rotated % 2 == 0,
            "RoPE with partial='proportional' pairs the whole head",
            got=f"head_dim={head_dim}",
            expected="an even head_dim",
        )
        if self.axes is not None:
            self.axes.check_width(rotated)
        if self.scaling is not None:
            for width in _widths(self, head_dim):
                self.scaling.check_width(self.base, width)


def _widths(scheme: RoPE, head_dim: int) -> tuple[int, ...]:
    """The widths over which a list of frequencies falls from fast to slow."""
    if isinstance(scheme.axes, Axial):
        return tuple(2 * size for size in scheme.axes.sizes)
    return (scheme.rotated(head_dim),)


@functools.lru_cache(maxsize=256)
def _frequencies(scheme: RoPE, head_dim: int, length: int) -> tuple[float, ...]:
    base, found = Decimal(scheme.base), []
    with decimals():
        for width in _widths(scheme, head_dim):
            if scheme.scaling is None:
                found += geometric(base, width)
            else:
                found += scheme.scaling.frequencies(base, width, length)
        turning = len(found) if scheme.rotary_dim is None else scheme.rotary_dim // 2
        return tuple(float(f) if m < turning else 0.0 for m, f in enumerate(found))
