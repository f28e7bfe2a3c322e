"""ALiBi (Press et al., 2022): a penalty proportional to distance, steeper in some heads.

    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]> - slope[h] * |j - i|
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]
    slope[h]       = 2 ** (-max_bias * (h + 1) / n)          h = 0 .. n - 1, n heads, a power of two

Where the number of heads is no power of two, the slopes are those of the next smaller power n,
followed by every other slope of 2n heads, from the first on: 6 heads have 1/4, 1/16, 1/64, 1/256,
1/2, 1/8. They are not sorted: weights were trained with this order.

With `symmetric=False` the term is slope[h] * (j - i). For keys up to the query that is the same
number; keys after the query are preferred the more, the farther they are. The softmax is blind to
what all keys of a query share, so this is also slope[h] * j, which is how models of text write it.
In causal attention the two forms give the same output, without a causal mask they do not.

| our name          | elsewhere                                                                   |
|-------------------|-----------------------------------------------------------------------------|
| `symmetric=True`  | x-transformers `AlibiPositionalBias`; JinaBERT                              |
| `symmetric=False` | Bloom and Falcon `build_alibi_tensor`, MPT `build_mpt_alibi_tensor`         |
| `scaled=True`     | Falcon, whose bias is added before the division by sqrt(d)                  |
| `unbiased_heads`  | x-transformers `total_heads - heads`, `heads - alibi_num_heads`             |
| `max_bias`        | MPT `alibi_bias_max`                                                        |
| `slopes` [H]      | x-transformers `slopes` [H, 1, 1]                                           |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from relpos.schemes.base import Parameter, Scheme, each, require

__all__ = ["ALiBi"]


@dataclass(frozen=True)
class ALiBi(Scheme):
    """A penalty per head, proportional to distance.

    The formula and the names used elsewhere stand at the top of this module.

    `relative_scores` sees one head, and fixed slopes are then those of a model with one head: to
    say which, let it be `learned` and pass the slope.

    Attributes:
        symmetric: Keys after the query are penalised like those before it. False prefers them.
        learned: The slopes are learned, from the fixed ones on; of any sign.
        scaled: The bias is added before the scaling and so multiplied by `scale` too.
        unbiased_heads: The last heads, this many, have no bias; the slopes are those of a model
            that has the others alone.
        max_bias: Minus the exponent of the last slope of n heads, n a power of two; > 0.

    Raises:
        SettingError: A setting is impossible, alone or for the number of heads.

    Paper: Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation,
    https://arxiv.org/abs/2108.12409.

    Example:
        >>> ALiBi().slopes(num_heads=6)
        (0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125)
    """

    name: ClassVar[str] = "ALiBi"
    paper: ClassVar[str] = "Press et al., 2022"
    url: ClassVar[str] = "https://arxiv.org/abs/2108.12409"
    used_by: ClassVar[tuple[str, ...]] = ("BLOOM", "MPT", "Falcon-RW", "Baichuan-13B", "JinaBERT")
    extrapolates: ClassVar[bool] = True

    symmetric: bool = True
    learned: bool = False
    scaled: bool = False
    unbiased_heads: int = 0
    max_bias: float = 8.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            math.isfinite(self.max_bias) and self.max_bias > 0.0,
            "ALiBi.max_bias makes the slopes fall from head to head",
            got=self.max_bias,
            expected="a finite number > 0",
        )
        require(
            self.unbiased_heads >= 0,
            "ALiBi.unbiased_heads counts heads",
            got=self.unbiased_heads,
            expected=">= 0",
        )
        require(
            not (self.learned and self.unbiased_heads),
            "ALiBi learns the slope of every head or of none",
            got=f"learned=True, unbiased_heads={self.unbiased_heads}",
            expected="unbiased_heads=0: a learned slope may become 0",
        )

    def slopes(self, num_heads: int) -> tuple[float, ...]:
        """The fixed slope of each head, or where a learned one begins."""
        biased = num_heads - self.unbiased_heads
        require(
            biased >= 0,
            "ALiBi.unbiased_heads are some of the heads",
            got=f"{self.unbiased_heads} of {num_heads}",
            expected=f"at most {num_heads}",
        )
        power = 1 << max(biased.bit_length() - 1, 0)
        halves = self._geometric(2 * power)[0::2]
        slopes = [*self._geometric(power), *halves][:biased]
        return (*slopes, *[0.0] * self.unbiased_heads)

    def _geometric(self, n: int) -> list[float]:
        return [2.0 ** (-self.max_bias * (h + 1) / n) for h in range(n)]

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """`slopes` [H] if learned, each beginning at its fixed value."""
        slopes = self.slopes(num_heads)
        if not self.learned:
            return ()
        return (Parameter("slopes", ("heads",), (num_heads,), each(slopes)),)
