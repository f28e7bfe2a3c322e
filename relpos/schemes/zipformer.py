"""Zipformer (Yao et al., 2023): a small query of its own meets a compressed distance.

    y(x)           = c sign(x) log(1 + abs(x) / c)                      c = sqrt(E)
    a(x)           = arctan(2 pi y(x) / (length_factor E))              in (-pi/2, pi/2)
    s(x)           = (cos a(x), sin a(x), cos 2 a(x), sin 2 a(x), ..., cos (E/2) a(x), 1)
    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]>
                     + <position_query[b,h,i], s(j - i) @ position_kernel[h]>
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]

i is the query's position, j the key's, h the head, b the batch row; E = `width` is even. The last
sine gives way to a 1, which serves as a bias. Beyond `clamp` x stays what it is there, on either
side. Neighbours are told apart nearby, and far away only magnitudes are. `scale` is 1 unless it is
given, and the position part is never scaled.

| our name                | icefall                                                       |
|-------------------------|---------------------------------------------------------------|
| `width`                 | `pos_dim`, 48                                                 |
| `query_width`           | `pos_head_dim`, 4                                             |
| `position_query` kernel | the last H * e rows of `in_proj`, and bias                    |
| `position_kernel`       | `linear_pos` [H * e, E]                                       |
| `length_factor`         | `length_factor`                                               |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from relpos.distance import clamped_range
from relpos.errors import SettingError
from relpos.schemes.base import Parameter, Projection, Scheme, glorot, require

__all__ = ["Zipformer"]


@dataclass(frozen=True)
class Zipformer(Scheme):
    """Compressed distances through a learned projection, met by a small query of their own.

    The formula and the names used elsewhere stand at the top of this module. It works at any
    length. What a layer makes of each query's token, `position_query`, is given to the functions as
    `query_features`.

    Attributes:
        width: Width of the encoding of a distance, E; even.
        query_width: Width of the small query in each head, e, >= 1.
        length_factor: Larger ones tell fewer neighbours apart, > 0.
        clamp: Farther distances count as this one, in positions, >= 0; None clamps none.

    Raises:
        SettingError: A setting is impossible; or, from a call without `clamp`, positions are such
            that compiled code cannot see them.

    Paper: Zipformer: A Faster and Better Encoder for Automatic Speech Recognition,
    https://arxiv.org/abs/2310.11230.

    Example:
        >>> [p.shape for p in Zipformer(width=48, query_width=4).parameters(8, 32)]
        [(8, 48, 4)]
    """

    name: ClassVar[str] = "Zipformer"
    paper: ClassVar[str] = "Yao et al., 2023"
    url: ClassVar[str] = "https://arxiv.org/abs/2310.11230"
    used_by: ClassVar[tuple[str, ...]] = ("Zipformer of icefall",)
    extrapolates: ClassVar[bool] = False

    width: int
    query_width: int
    length_factor: float = 1.0
    clamp: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.width >= 2 and self.width % 2 == 0,
            "Zipformer.width holds a cosine and a sine of every multiple",
            got=self.width,
            expected="an even number >= 2",
        )
        require(
            self.query_width >= 1,
            "Zipformer.query_width counts channels",
            got=self.query_width,
            expected="an int >= 1",
        )
        require(
            0.0 < self.length_factor < math.inf,
            "Zipformer.length_factor divides distances",
            got=self.length_factor,
            expected="a finite number > 0",
        )
        require(
            self.clamp is None or self.clamp >= 0,
            "Zipformer.clamp counts positions",
            got=self.clamp,
            expected="an int >= 0, or None",
        )

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """`position_kernel` [H, E, e], Glorot uniform."""
        axes, shape = ("heads", "features", "features"), (num_heads, self.width, self.query_width)
        init = glorot(self.width, num_heads * self.query_width)
        return (Parameter("position_kernel", axes, shape, init),)

    def scale(self, head_dim: int) -> float:
        """1: the factor is part of the projections."""
        return 1.0

    @property
    def query_projection(self) -> Projection:
        """The small query of each head."""
        return Projection("position_query", width=self.query_width)

    def listed(self, distances: tuple[int, int] | None) -> tuple[int, int]:
        """The distances whose encodings a call projects.

        Args:
            distances: The lowest and highest j - i of the call, or None where they are not seen.
        """
        if self.clamp is not None:
            return clamped_range(distances, self.clamp)
        if distances is None:
            raise SettingError(
                "Zipformer lists the distances of a call, which must be seen",
                got="explicit positions whose values compiled code or vmap hides",
                expected="clamp=N, for N no less than any distance; or the default positions; or "
                "a call that is not compiled",
            )
        return distances
