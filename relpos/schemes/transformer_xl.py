"""Transformer-XL (Dai et al., 2019), and Conformers: projected sinusoids of the distance.

    f_m            = base ** (-2m / E)                                  m = 0 .. E/2 - 1
    s(x)           = (sin(x f_0), ..., sin(x f_M), cos(x f_0), ..., cos(x f_M))         `concat`
                   = (sin(x f_0), cos(x f_0), ..., sin(x f_M), cos(x f_M))         `interleaved`
    p[h](x)        = s(x) @ position_kernel[h]
    score[b,h,i,j] = scale * (<q[b,h,i] + content_bias[h], k[b,h,j]>
                              + <q[b,h,i] + position_bias[h], p[h](i - j)>)
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]

i is the query's position, j the key's, h the head, b the batch row; E = `width` is even and M = E/2
- 1. The sinusoid's argument is i - j, as everywhere else: positive for keys before the query.
Beyond `clamp` it stays what it is there, on either side. Keys after the query have sines of
negative numbers; with `symmetric` they read abs(i - j), and left and right are told apart no more.

| our name                   | Transformer-XL, XLNet  | ESPnet, NeMo, transformers' Conformers   |
|----------------------------|------------------------|------------------------------------------|
| `content_bias`             | `r_w_bias`, u          | `pos_bias_u`, `bias_u`                   |
| `position_bias`            | `r_r_bias`, v          | `pos_bias_v`, `bias_v`                   |
| `position_kernel`          | `r_net`, `r`, W_kR     | `linear_pos`, `relative_k_proj`          |
| `order`                    | `concat`               | `interleaved`                            |
| `width`                    | `d_model`              | `d_model`, `hidden_size`                 |
| `clamp`                    | `clamp_len`            | none                                     |
| `symmetric`                | none                   | SpeechBrain's `use_legacy_symmetric`     |

Two ways give the same score. The sinusoids of a call's distances are projected by the kernel, to a
table; or the queries are, to E channels that turn with the query's position and meet the plain
sinusoids of the keys, by the addition formulas of sine and cosine. The latter needs no list of
distances, and is less work for a few queries and many keys.

WeNet's Conformer is not this scheme: it lacks the relative shift, so that its position term reads
the key's position alone, whatever the query's is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from relpos.distance import clamped_range
from relpos.rotation import frequencies
from relpos.schemes.base import Parameter, Scheme, glorot, require, zeros

__all__ = ["TransformerXL"]


@dataclass(frozen=True)
class TransformerXL(Scheme):
    """Sinusoids of the distance through a learned projection, and two learned biases on the query.

    The formula and the names used elsewhere stand at the top of this module. The position part of
    the score is scaled together with the content. It works at any length.

    Attributes:
        order: How the sinusoid is laid out: `concat` has all sines and then all cosines,
            `interleaved` a sine and a cosine in turn. Weights trained with one are wrong under the
            other; there is no default that is safe to guess, so it is required.
        width: Width of the sinusoid, E; even. Public checkpoints have the width of their model.
        base: Base of the geometric sequence of frequencies, > 1. Angles are in radians per
            position.
        clamp: Farther distances count as this one, in positions, >= 0; None clamps none.
        symmetric: Legacy, for checkpoints of SpeechBrain: keys after the query have the sinusoid of
            those as far before it.

    Raises:
        SettingError: A setting is impossible; or, from a call, `symmetric` without `clamp` meets
            positions that compiled code cannot see.

    Paper: Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context,
    https://arxiv.org/abs/1901.02860; Conformer, https://arxiv.org/abs/2005.08100.

    Example:
        >>> [p.shape for p in TransformerXL("concat", width=64).parameters(4, 16)]
        [(4, 16), (4, 16), (4, 64, 16)]
    """

    name: ClassVar[str] = "TransformerXL"
    paper: ClassVar[str] = "Dai et al., 2019"
    url: ClassVar[str] = "https://arxiv.org/abs/1901.02860"
    used_by: ClassVar[tuple[str, ...]] = ("Transformer-XL", "XLNet", "Conformer", "Parakeet")
    extrapolates: ClassVar[bool] = True

    order: Literal["concat", "interleaved"]
    width: int
    base: float = 10000.0
    clamp: int | None = None
    symmetric: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.width >= 2 and self.width % 2 == 0,
            "TransformerXL.width holds a sine and a cosine of every frequency",
            got=self.width,
            expected="an even number >= 2",
        )
        require(
            math.isfinite(self.base) and self.base > 1.0,
            "TransformerXL.base must give falling frequencies",
            got=self.base,
            expected="a finite number > 1",
        )
        require(
            self.clamp is None or self.clamp >= 0,
            "TransformerXL.clamp counts positions",
            got=self.clamp,
            expected="an int >= 0, or None",
        )

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """`content_bias` and `position_bias` [H, d], zeros; `position_kernel` [H, E, d], Glorot."""
        bias = (("heads", "head_dim"), (num_heads, head_dim), zeros())
        axes = ("heads", "features", "head_dim")
        shape = (num_heads, self.width, head_dim)
        init = glorot(self.width, num_heads * head_dim)
        return (
            Parameter("content_bias", *bias),
            Parameter("position_bias", *bias),
            Parameter("position_kernel", axes, shape, init),
        )

    def projected(
        self, distances: tuple[int, int] | None, num_queries: int, num_keys: int, head_dim: int
    ) -> tuple[int, int] | None:
        """The distances whose sinusoids a call projects; None if it projects the queries.

        Args:
            distances: The lowest and highest j - i of the call, or None where they are not seen.
            num_queries: Of all batch rows together.
            num_keys: Of one batch row.
            head_dim: d.
        """
        if self.clamp is not None:
            return clamped_range(distances, self.clamp)
        require(
            distances is not None or not self.symmetric,
            "TransformerXL with symmetric=True lists the distances of a call, which must be seen",
            got="explicit positions whose values compiled code or vmap hides",
            expected="clamp=N, for N no less than any distance; or the default positions; or a "
            "call that is not compiled",
        )
        if distances is None or self.symmetric:
            return distances
        lowest, highest = distances
        if not all(isinstance(n, int) for n in (lowest, highest, num_queries, num_keys)):
            # Lengths that a compiler knows by letter only: a choice would tie it to some of them.
            return distances
        # Multiplications, per head.
        by_distance = (highest - lowest + 1) * head_dim * (self.width + num_queries)
        by_query = num_queries * self.width * (head_dim + num_keys)
        return distances if by_distance <= by_query else None

    def frequencies(self, head_dim: int, length: int = 0) -> tuple[float, ...]:
        """f_m, radians per position; neither the heads nor the call's length change them."""
        return tuple(frequencies(self.base, self.width).tolist())
