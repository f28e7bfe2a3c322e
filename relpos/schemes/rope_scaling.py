"""Other frequencies for RoPE, so that a model reads beyond the length it was trained on.

With g_m = base ** (-2m / r), m = 0 .. r/2 - 1, the frequencies of the plain rotation, s the factor
by which the length is stretched, L0 the length that was trained on and L the length of the call:

    LinearScaling   f_m = g_m / s
    NTKScaling      f_m = (base * s ** (r / (r - 2))) ** (-2m / r)
    DynamicNTK      as NTKScaling with s L / L0 - (s - 1) in place of s where L > L0; else g_m
    YaRN            f_m = g_m / s * ramp_m + g_m * (1 - ramp_m)
                    ramp_m = clip((m - low) / (high - low), 0, 1)
                    low, high = max(0, pair(beta_fast)), min(r - 1, pair(beta_slow))
                    pair(n) = r ln(L0 / (2 pi n)) / (2 ln base): it turns n times in L0 positions;
                    with `truncate`, low is rounded down and high up
    LongRoPE        f_m = g_m / short_factors[m] where L <= L0, else g_m / long_factors[m]
    Llama3Scaling   f_m = g_m                              turns > high_frequency_factor
                        = g_m / s                          turns < low_frequency_factor
                        = g_m (w + (1 - w) / s)            between
                    turns = L0 g_m / (2 pi),  w = (turns - low) / (high - low)

Two of them also multiply all cosines and sines by an attention factor, and so the scores of
rotated channels by its square:

    YaRN            `attention_factor`, or else M(mscale) / M(mscale_all_dim) if these are given,
                    or else M(1);   M(c) = 1 + c ln(s) / 10
    LongRoPE        `attention_factor`, or else sqrt(1 + ln(s) / ln(L0))

The length L of a call is counted for each batch row by itself: its largest position + 1, over
queries and keys, masked ones too. So a row's result does not depend on what it is batched with.
Keys are cached without their rotation: what was read at one length is not stale at another, and a
short call after a long one is a short call. Decoding past L0 equals, at each step, a full run of
the tokens so far.

| our name               | elsewhere                                                            |
|------------------------|----------------------------------------------------------------------|
| the classes            | `rope_type` in transformers: linear, dynamic, yarn, longrope, llama3 |
| `original_length`      | `original_max_position_embeddings`; of DynamicNTK in transformers    |
|                        | `max_position_embeddings`                                            |
| `short_factors`        | `short_factor` and `long_factor` of Phi-3                            |
| `low_frequency_factor` | `low_freq_factor` and `high_freq_factor` of Llama 3                  |
| `NTKScaling.factor`    | `alpha`, `theta_rescale_factor`, `base_rescale_factor`               |

The ratio M(mscale) / M(mscale_all_dim) is the rule of transformers and sglang: equal ones give 1.
DeepSeek's attention also multiplies the scale of scores by M(mscale_all_dim) ** 2, as a matter of
the attention and not of the rotation: give it as the `scale` of the call or the layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import ClassVar

from relpos.rotation import PI, geometric
from relpos.schemes.base import Settings, require

__all__ = [
    "DynamicNTK",
    "LinearScaling",
    "Llama3Scaling",
    "LongRoPE",
    "NTKScaling",
    "RotaryScaling",
    "YaRN",
]


@dataclass(frozen=True)
class RotaryScaling(Settings):
    """Base of the settings that change RoPE's frequencies."""

    def frequencies(self, base: Decimal, width: int, length: int) -> list[Decimal]:
        """f_m of `width` rotated channels, for a call of this length."""
        raise NotImplementedError

    def check_width(self, base: float, width: int) -> None:
        """Raise `SettingError` if `width` rotated channels cannot carry this."""

    @property
    def magnitude(self) -> float:
        """The attention factor on all cosines and sines."""
        return 1.0

    def _check_factor(self, factor: float) -> None:
        require(
            math.isfinite(factor) and factor >= 1.0,
            f"{self.name}.factor stretches the length",
            got=factor,
            expected="a finite number >= 1",
        )

    def _check_original(self, length: int, least: int = 1) -> None:
        require(
            length >= least,
            f"{self.name}.original_length counts positions",
            got=length,
            expected=f">= {least}",
        )

    def _check_attention_factor(self, factor: float | None) -> None:
        require(
            factor is None or (math.isfinite(factor) and factor > 0.0),
            f"{self.name}.attention_factor multiplies cosines and sines",
            got=factor,
            expected="a finite number > 0, or None for the scheme's own",
        )

    def _check_two_pairs(self, width: int) -> None:
        require(
            width > 2,
            f"{self.name} keeps the first frequency and moves the last",
            got=f"{width} rotated channels",
            expected="at least 4",
        )


@dataclass(frozen=True)
class LinearScaling(RotaryScaling):
    """Positions divided by a factor.

    Attributes:
        factor: s, >= 1.

    Paper: Extending Context Window of Large Language Models via Positional Interpolation,
    https://arxiv.org/abs/2306.15595.

    Example:
        >>> from relpos import RoPE
        >>> RoPE("half", scaling=LinearScaling(4.0)).frequencies(head_dim=4)
        (0.25, 0.0025)
    """

    name: ClassVar[str] = "LinearScaling"

    factor: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_factor(self.factor)

    def frequencies(self, base: Decimal, width: int, length: int) -> list[Decimal]:
        """g_m / s."""
        return [plain / Decimal(self.factor) for plain in geometric(base, width)]


@dataclass(frozen=True)
class NTKScaling(RotaryScaling):
    """A larger base: the first frequency stays, the last is divided by a factor.

    Attributes:
        factor: s, >= 1.

    Proposed as "NTK-aware scaled RoPE" without a paper; described in section 3.1 of YaRN: Efficient
    Context Window Extension of Large Language Models, https://arxiv.org/abs/2309.00071.

    Example:
        >>> from relpos import RoPE
        >>> RoPE("half", scaling=NTKScaling(4.0)).frequencies(head_dim=4)
        (1.0, 0.0025)
    """

    name: ClassVar[str] = "NTKScaling"

    factor: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_factor(self.factor)

    def check_width(self, base: float, width: int) -> None:
        """There is a last frequency beside the first."""
        self._check_two_pairs(width)

    def frequencies(self, base: Decimal, width: int, length: int) -> list[Decimal]:
        """(base * s ** (r / (r - 2))) ** (-2m / r)."""
        return _stretched(base, width, Decimal(self.factor))


@dataclass(frozen=True)
class DynamicNTK(RotaryScaling):
    """NTK scaling that grows with the call's length, beginning at the length trained on.

    The frequencies are those of the call's own length, which is known for default positions and for
    positions whose values can be seen. Compiled code does not see the values of explicit positions
    (nor does `vmap`, nor a cache inside compiled code): there `length` must be set.

    Attributes:
        factor: s, >= 1.
        original_length: L0, positions, >= 1. Up to it the rotation is the plain one.
        length: If given, every call has the frequencies of a call of this length, > L0. None: each
            call has its own.

    Raises:
        SettingError: A setting is impossible; or, from a call, its length cannot be seen.

    Proposed without a paper; described in appendix B.2 of YaRN,
    https://arxiv.org/abs/2309.00071.

    Example:
        >>> from relpos import RoPE
        >>> scheme = RoPE("half", scaling=DynamicNTK(2.0, original_length=2048))
        >>> [scheme.frequencies(4, length) for length in (100, 2048, 4096)]
        [(1.0, 0.01), (1.0, 0.01), (1.0, 0.0033333333333333335)]
    """

    name: ClassVar[str] = "DynamicNTK"

    factor: float
    original_length: int
    length: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_factor(self.factor)
        self._check_original(self.original_length)
        require(
            self.length is None or self.length > self.original_length,
            "DynamicNTK.length fixes the frequencies of a longer call",
            got=self.length,
            expected=f"more than original_length={self.original_length}, or None",
        )

    def check_width(self, base: float, width: int) -> None:
        """There is a last frequency beside the first."""
        self._check_two_pairs(width)

    def frequencies(self, base: Decimal, width: int, length: int) -> list[Decimal]:
        """Those of NTK scaling by s L / L0 - (s - 1)."""
        if self.length is not None:
            length = self.length
        if length <= self.original_length:
            return geometric(base, width)
        factor = Decimal(self.factor)
        return _stretched(base, width, factor * length / self.original_length - (factor - 1))


@dataclass(frozen=True)
class YaRN(RotaryScaling):
    """Slow frequencies divided by a factor, fast ones kept, a ramp between; sharper scores.

    Attributes:
        factor: s, >= 1.
        original_length: L0, positions, >= 1.
        beta_fast: Pairs that turn more often than this in L0 positions keep their frequency.
        beta_slow: Pairs that turn less often than this are divided by s; below `beta_fast`.
        truncate: Round the ends of the ramp outwards to whole pairs.
        attention_factor: Factor on cosines and sines, > 0; None takes that of the next two, or
            1 + ln(s) / 10.
        mscale: c in the numerator's M(c), > 0; both of the two or neither.
        mscale_all_dim: c in the denominator's M(c), > 0.

    Raises:
        SettingError: A setting is impossible, beside another, or for the head width.

    Paper: YaRN: Efficient Context Window Extension of Large Language Models,
    https://arxiv.org/abs/2309.00071.

    Example:
        >>> YaRN(40.0, 4096, mscale=1.0, mscale_all_dim=1.0).magnitude
        1.0
    """

    name: ClassVar[str] = "YaRN"

    factor: float
    original_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_factor(self.factor)
        self._check_original(self.original_length)
        self._check_attention_factor(self.attention_factor)
        require(
            math.isfinite(self.beta_fast) and self.beta_fast > self.beta_slow > 0.0,
            "YaRN.beta_fast and beta_slow count turns",
            got=f"beta_fast={self.beta_fast}, beta_slow={self.beta_slow}",
            expected="beta_fast > beta_slow > 0",
        )
        scales = (self.mscale, self.mscale_all_dim)
        require(
            scales == (None, None)
            or all(scale is not None and 0.0 < scale < math.inf for scale in scales),
            "YaRN.mscale and mscale_all_dim are the two halves of one ratio",
            got=f"mscale={self.mscale}, mscale_all_dim={self.mscale_all_dim}",
            expected="both > 0, or both None (what transformers takes one of them, or 0, for)",
        )
        require(
            self.attention_factor is None or self.mscale is None,
            "YaRN has one attention factor",
            got=f"attention_factor={self.attention_factor} beside mscale={self.mscale}",
            expected="attention_factor alone (transformers ignores the others), or mscale and "
            "mscale_all_dim",
        )

    def check_width(self, base: float, width: int) -> None:
        """The ramp rises somewhere inside the head."""
        slowest = math.log(self.original_length / (2 * math.pi * self.beta_slow))
        fastest = math.log(self.original_length / (2 * math.pi * self.beta_fast))
        pairs = width / (2 * math.log(base))
        require(
            slowest > 0.0 and fastest * pairs < width - 1,
            "YaRN's ramp lies among the pairs",
            got=f"original_length={self.original_length} for base {base}, width {width}: from pair "
            f"{fastest * pairs:.2f} to {slowest * pairs:.2f}",
            expected=f"a ramp that begins below {width - 1} and ends above 0",
        )

    def frequencies(self, base: Decimal, width: int, length: int) -> list[Decimal]:
        """g_m / s * ramp_m + g_m * (1 - ramp_m)."""
        low, high = (
            width * (self.original_length / (2 * PI * Decimal(turns))).ln() / (2 * base.ln())
            for turns in (self.beta_fast, self.beta_slow)
        )
        if self.truncate:
            low = low.to_integral_value(ROUND_FLOOR)
            high = high.to_integral_value(ROUND_CEILING)
        low, high = max(low, Decimal(0)), min(high, Decimal(width - 1))
        found = []
        for m, plain in enumerate(geometric(base, width)):
            # A ramp without length is a step: what stands at it keeps its frequency.
            risen = (m - low) / (high - low) if high > low else Decimal(int(m > low))
            ramp = min(max(risen, Decimal(0)), Decimal(1))
            found.append(plain * (ramp / Decimal(self.factor) + 1 - ramp))
        return found

    @property
    def magnitude(self) -> float:
        """`attention_factor`, or M(mscale) / M(mscale_all_dim), or M(1)."""
        if self.attention_factor is not None:
            return self.attention_factor
        growth = 0.1 * math.log(self.factor)
        if self.mscale is None or self.mscale_all_dim is None:
            return 1.0 + growth
        return (1.0 + self.mscale * growth) / (1.0 + self.mscale_all_dim * growth)


@dataclass(frozen=True)
class LongRoPE(RotaryScaling):
    """A divisor per frequency, found by search: one list up to a length, another beyond it.

    Attributes:
        short_factors: Divisors up to L0, one per rotated pair, > 0.
        long_factors: Divisors beyond L0.
        original_length: L0, positions, >= 2.
        factor: s, >= 1, from which the attention factor follows; transformers has
            `max_position_embeddings / original_max_position_embeddings`. This or the next.
        attention_factor: Factor on cosines and sines, > 0.

    Raises:
        SettingError: A setting is impossible, beside another, or for the head width.

    Paper: LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens,
    https://arxiv.org/abs/2402.13753.

    Example:
        >>> from relpos import RoPE
        >>> scaling = LongRoPE((1.0, 2.0), (4.0, 8.0), original_length=4096, attention_factor=1.0)
        >>> [RoPE("half", scaling=scaling).frequencies(4, length) for length in (4096, 4097)]
        [(1.0, 0.005), (0.25, 0.00125)]
    """

    name: ClassVar[str] = "LongRoPE"

    short_factors: tuple[float, ...]
    long_factors: tuple[float, ...]
    original_length: int
    factor: float | None = None
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_original(self.original_length, least=2)
        self._check_attention_factor(self.attention_factor)
        require(
            (self.factor is None) != (self.attention_factor is None),
            "LongRoPE has one attention factor",
            got=f"factor={self.factor}, attention_factor={self.attention_factor}",
            expected="factor, from which it follows, or attention_factor itself",
        )
        if self.factor is not None:
            self._check_factor(self.factor)
        for name in ("short_factors", "long_factors"):
            factors = getattr(self, name)
            require(
                all(0.0 < factor < math.inf for factor in factors),
                f"LongRoPE.{name} divide frequencies",
                got=factors,
                expected="finite numbers > 0",
            )

    def check_width(self, base: float, width: int) -> None:
        """There is one divisor per pair."""
        counts = (len(self.short_factors), len(self.long_factors))
        require(
            counts == (width // 2, width // 2),
            "LongRoPE has one short and one long factor per rotated pair",
            got=f"{counts[0]} short, {counts[1]} long",
            expected=f"{width // 2} of each",
        )

    def frequencies(self, base: Decimal, width: int, length: int) -> list[Decimal]:
        """g_m / short_factors[m], beyond the original length g_m / long_factors[m]."""
        is_long = length > self.original_length
        factors = self.long_factors if is_long else self.short_factors
        plain = geometric(base, width)
        return [f / Decimal(factor) for f, factor in zip(plain, factors, strict=True)]

    @property
    def magnitude(self) -> float:
        """`attention_factor`, or sqrt(1 + ln(s) / ln(L0))."""
        if self.factor is None:
            assert self.attention_factor is not None
            return self.attention_factor
        return math.sqrt(1.0 + math.log(self.factor) / math.log(self.original_length))


@dataclass(frozen=True)
class Llama3Scaling(RotaryScaling):
    """Slow frequencies divided by a factor, fast ones kept, a linear blend by turns between.

    Attributes:
        factor: s, >= 1.
        low_frequency_factor: Pairs that turn less often than this in L0 positions are divided.
        high_frequency_factor: Pairs that turn more often than this are kept; above the former.
        original_length: L0, positions, >= 1.

    Raises:
        SettingError: A setting is impossible, alone or beside another.

    Paper: The Llama 3 Herd of Models, https://arxiv.org/abs/2407.21783; the rule is in its released
    code.

    Example:
        >>> from relpos import RoPE
        >>> scheme = RoPE("half", base=500_000.0, scaling=Llama3Scaling(32.0))
        >>> plain = RoPE("half", base=500_000.0).frequencies(64)
        >>> [round(f / g, 3) for f, g in zip(scheme.frequencies(64), plain)][14:19]
        [1.0, 0.606, 0.304, 0.103, 0.031]
    """

    name: ClassVar[str] = "Llama3Scaling"

    factor: float
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_length: int = 8192

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_factor(self.factor)
        self._check_original(self.original_length)
        require(
            0.0 < self.low_frequency_factor < self.high_frequency_factor < math.inf,
            "Llama3Scaling's two frequency factors count turns",
            got=f"low {self.low_frequency_factor}, high {self.high_frequency_factor}",
            expected="0 < low_frequency_factor < high_frequency_factor",
        )

    def frequencies(self, base: Decimal, width: int, length: int) -> list[Decimal]:
        """g_m (w + (1 - w) / s), with w from 0 for slow pairs to 1 for fast ones."""
        low, high = Decimal(self.low_frequency_factor), Decimal(self.high_frequency_factor)
        found = []
        for plain in geometric(base, width):
            turns = self.original_length * plain / (2 * PI)
            weight = min(max((turns - low) / (high - low), Decimal(0)), Decimal(1))
            found.append(plain * (weight + (1 - weight) / Decimal(self.factor)))
        return found


def _stretched(base: Decimal, width: int, factor: Decimal) -> list[Decimal]:
    """The geometric frequencies of the base that divides the last of them by `factor`."""
    return geometric(base * factor ** (Decimal(width) / (width - 2)), width)
