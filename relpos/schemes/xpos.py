"""xPos (Sun et al., 2022): RoPE whose pairs also decay with the distance, slow pairs least.

    f_m            = base ** (-2m / r)                                  m = 0 .. r/2 - 1
    z_m            = (2m / r + gamma) / (1 + gamma)                     in (0, 1)
    score[b,h,i,j] = scale * sum_m z_m ** ((i - j) / scale_base) * <R(i) q, R(j) k>_m
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]

R and its pairs are those of RoPE, with r = `rotary_dim`; <.,.>_m is the share of pair m. Channels
r .. d-1 are neither rotated nor scaled. A key before its query decays, one after it grows without
bound: the scheme is meant for causal attention, though nothing refuses another.

Only differences of positions count, and no result depends on the call's own length. Computed it is
as a factor z ** ((i - c) / scale_base) on the query and its inverse on the key, with c midway
between the lowest and the highest position of the batch row. Both factors stay within 2**-64 and
2**64, so that float32 neither overflows nor loses digits: positions of a row, masked ones included,
may lie `reach` apart, 36 260 for the default settings. A wider row is an error, or NaN where
positions cannot be seen.

| our name     | elsewhere                                                                   |
|--------------|-----------------------------------------------------------------------------|
| `scale_base` | `xpos_scale_base`, `rotary_xpos_scale_base`                                 |
| `gamma`      | 0.4, written out in torchscale, x-transformers and rotary-embedding-torch   |
| z_m          | `scale` there; they count positions from the middle of each call instead    |
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Literal

from relpos.rotation import decimals, frequencies
from relpos.schemes.base import Parameter, Scheme, require
from relpos.schemes.rope import check_rotation, check_rotation_fits

__all__ = ["XPos"]

#: Binary exponent of the largest factor on a query or key: as much is left for their own entries.
LARGEST = 64


@dataclass(frozen=True)
class XPos(Scheme):
    """Rotation as in RoPE, with an exponential decay by distance in every pair.

    The formula and the names used elsewhere stand at the top of this module.

    Attributes:
        layout: Which channels form a pair: `half` or `interleaved`, as in RoPE; required.
        rotary_dim: Channels that are rotated and decay, from the first; even. None takes all.
        base: Base of the geometric sequence of frequencies, > 1.
        scale_base: Positions over which pair m decays by z_m, > 0.
        gamma: How little the decay differs between pairs, > 0.

    Raises:
        SettingError: A setting is impossible, alone or for the layer's head width.
        DistanceError: From a call, positions of a row lie farther apart than `reach`.

    Paper: A Length-Extrapolatable Transformer, https://arxiv.org/abs/2212.10554.

    Example:
        >>> XPos("interleaved").reach
        36260
    """

    name: ClassVar[str] = "XPos"
    paper: ClassVar[str] = "Sun et al., 2022"
    url: ClassVar[str] = "https://arxiv.org/abs/2212.10554"
    used_by: ClassVar[tuple[str, ...]] = ()
    extrapolates: ClassVar[bool] = True

    layout: Literal["half", "interleaved"]
    rotary_dim: int | None = None
    base: float = 10000.0
    scale_base: float = 512.0
    gamma: float = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rotation(self.name, self.rotary_dim, self.base)
        for name in ("scale_base", "gamma"):
            value = getattr(self, name)
            require(
                0.0 < value < math.inf,
                f"XPos.{name} sets the decay",
                got=value,
                expected="a finite number > 0",
            )

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """None: frequencies and decay are fixed."""
        return ()

    def rotated(self, head_dim: int) -> int:
        """The number of rotated channels in a head of width `head_dim`."""
        return head_dim if self.rotary_dim is None else self.rotary_dim

    def frequencies(self, head_dim: int, length: int = 0) -> tuple[float, ...]:
        """f_m of each pair, radians per position; no `length` changes them."""
        return tuple(frequencies(self.base, self.rotated(head_dim)).tolist())

    def rates(self, head_dim: int) -> tuple[float, ...]:
        """ln(z_m) / scale_base of each pair, per position, rounded once to float64."""
        return _rates(self, self.rotated(head_dim))

    @property
    def reach(self) -> int:
        """How far the positions of one batch row may lie apart."""
        steepest = math.log1p(1.0 / self.gamma) / self.scale_base
        return int(2 * (LARGEST * math.log(2.0) / steepest))

    def check_head_dim(self, head_dim: int) -> None:
        """The rotated channels must fit the head and form pairs."""
        check_rotation_fits(self.name, self.rotary_dim, head_dim)


@functools.lru_cache(maxsize=256)
def _rates(scheme: XPos, width: int) -> tuple[float, ...]:
    with decimals():
        gamma, scale_base = Decimal(scheme.gamma), Decimal(scheme.scale_base)
        kept = [(Decimal(2 * m) / width + gamma) / (1 + gamma) for m in range(width // 2)]
        return tuple(float(z.ln() / scale_base) for z in kept)
