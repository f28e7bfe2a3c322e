"""Sandwich (Chi et al., 2023): the product of two sinusoidal embeddings as a bias.

    f_m            = base ** (-2m / width)             m = first .. first + width/2 - 1
    ratio[h]       = max_ratio * (h + 1) / H
    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]> - 1/ratio[h] * sum_m (1 - cos((j - i) f_m))
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]

The sum of cos((j - i) f_m) is the product of the embeddings of positions i and j, whose cosines and
sines have the frequencies f_m of Vaswani et al. (2017); the constant width/2 makes the bias 0 where
the query stands and is nothing to the softmax. The bias falls as the logarithm of the distance
does, and wavers where f_m has gone round. It is added after the scaling and the same in both
directions.

| our name        | the paper                                                           |
|-----------------|---------------------------------------------------------------------|
| `width`         | d-bar, chosen there as 128; not the width of a head                 |
| `max_ratio`     | 8, the last head's; head h of H has 8 h / H, counted from 1         |
| `base`          | 10000                                                               |
| `first`         | 0 in the embedding of Vaswani et al.; 1 where sums are written so   |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from relpos.rotation import frequencies
from relpos.schemes.base import Parameter, Scheme, require

__all__ = ["Sandwich"]


@dataclass(frozen=True)
class Sandwich(Scheme):
    """A fixed sum of cosines of the distance, weaker from head to head.

    The formula and the names used elsewhere stand at the top of this module.

    `relative_scores` sees one head: its ratio is `max_ratio`.

    Attributes:
        width: Channels of the embedding, two per frequency; even, >= 2.
        base: Base of the geometric sequence of frequencies, > 1. Angles are in radians per
            position.
        max_ratio: What the sum is divided by in the last head, > 0.
        first: m of the fastest frequency, >= 0. Where the sum is written from 1, it falls much
            more slowly.

    Raises:
        SettingError: A setting is impossible.

    Paper: Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis,
    https://arxiv.org/abs/2212.10356.

    Example:
        >>> Sandwich().ratios(num_heads=4)
        (2.0, 4.0, 6.0, 8.0)
    """

    name: ClassVar[str] = "Sandwich"
    paper: ClassVar[str] = "Chi et al., 2023"
    url: ClassVar[str] = "https://arxiv.org/abs/2212.10356"
    used_by: ClassVar[tuple[str, ...]] = ()
    extrapolates: ClassVar[bool] = True

    width: int = 128
    base: float = 10000.0
    max_ratio: float = 8.0
    first: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.width >= 2 and self.width % 2 == 0,
            "Sandwich.width holds a cosine and a sine per frequency",
            got=self.width,
            expected="an even number >= 2",
        )
        require(
            math.isfinite(self.base) and self.base > 1.0,
            "Sandwich.base must give falling frequencies",
            got=self.base,
            expected="a finite number > 1",
        )
        require(
            math.isfinite(self.max_ratio) and self.max_ratio > 0.0,
            "Sandwich.max_ratio divides the last head's sum",
            got=self.max_ratio,
            expected="a finite number > 0",
        )
        require(
            self.first >= 0,
            "Sandwich.first counts frequencies that are left out",
            got=self.first,
            expected="an int >= 0",
        )

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """None: everything is fixed."""
        return ()

    def ratios(self, num_heads: int) -> tuple[float, ...]:
        """What each head's sum is divided by."""
        return tuple(self.max_ratio * (h + 1) / num_heads for h in range(num_heads))

    def frequencies(self, head_dim: int = 0, length: int = 0) -> tuple[float, ...]:
        """f_m, radians per position, rounded once to float64; no head or call changes them."""
        return tuple(map(float, frequencies(self.base, self.width, self.first)))
