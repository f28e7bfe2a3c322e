"""RoPE over positions with several axes: time, height and width of a patch of an image or film.

Positions are then [B or 1, L, A], A whole numbers per token, and every rotated pair follows one of
the axes. With f_m the frequency of pair m and a(m) its axis, it turns by p[a(m)] f_m. The sizes s_a
count the pairs of each axis; there are r/2 pairs in all.

    Sections, contiguous    f_m as in RoPE;  a = 0 for the first s_0 pairs, 1 for the next s_1, ...
    Sections, interleaved   f_m as in RoPE;  pairs are dealt to the axes one by one in turn, and an
                            axis that has its s_a is passed over
    Axial                   contiguous, and each axis has all frequencies, from fast to slow:
                            base ** (-n / s_a) for its pair number n

Positions with one axis, [L] or [B, L], mean that all axes are equal, as they are for text: with
`Sections` that is the plain rotation.

Positions with several axes have no order of their own. So `causal=True` goes by the order of the
tokens there, the queries being the last tokens of the keys.

| our name                | elsewhere                                                           |
|-------------------------|---------------------------------------------------------------------|
| `Sections` contiguous   | `mrope_section` of Qwen2-VL and Qwen2.5-VL: [16, 24, 24]            |
| `Sections` interleaved  | `mrope_section` of Qwen3-VL, `mrope_interleaved`: [24, 20, 20]      |
| `Axial((n, n))`, `half` | the vision towers of Qwen-VL, `rope_type` axial                     |
| `Axial`, `interleaved`  | `get_axial_freqs` of rotary-embedding-torch                         |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from relpos.schemes.base import Settings, require

__all__ = ["Axial", "RotaryAxes", "Sections"]


@dataclass(frozen=True)
class RotaryAxes(Settings):
    """Base of the settings that deal rotated pairs to the axes of positions."""

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            len(self.sizes) >= 2 and min(self.sizes) >= 1,
            f"{self.name}.sizes count the pairs of each axis",
            got=self.sizes,
            expected="two or more numbers >= 1",
        )

    def axis_of_pair(self) -> tuple[int, ...]:
        """The axis that each pair follows."""
        return tuple(axis for axis, size in enumerate(self.sizes) for _ in range(size))

    def check_width(self, width: int) -> None:
        """Every pair of `width` rotated channels follows an axis."""
        require(
            2 * sum(self.sizes) == width,
            f"{self.name}.sizes name an axis for every rotated pair",
            got=f"{self.sizes}, {sum(self.sizes)} pairs",
            expected=f"{width // 2} pairs",
        )


@dataclass(frozen=True)
class Sections(RotaryAxes):
    """One list of frequencies, dealt out to the axes.

    Attributes:
        sizes: Pairs of each axis, >= 1. If interleaved, none exceeds the first: so it is where this
            is used, and where that rule has one reading.
        order: `contiguous`: first all pairs of axis 0; `interleaved`: in turn.

    Raises:
        SettingError: The sizes are impossible, or do not fill the rotated channels.

    Paper: Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution,
    https://arxiv.org/abs/2409.12191; interleaved: https://arxiv.org/abs/2511.21631.

    Example:
        >>> Sections((2, 2, 2)).axis_of_pair()
        (0, 0, 1, 1, 2, 2)
        >>> Sections((3, 2, 2), order="interleaved").axis_of_pair()
        (0, 1, 2, 0, 1, 2, 0)
    """

    name: ClassVar[str] = "Sections"

    order: Literal["contiguous", "interleaved"] = "contiguous"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.order == "contiguous" or max(self.sizes) == self.sizes[0],
            "Sections in turn give the first axis the most pairs",
            got=self.sizes,
            expected="no size above the first",
        )

    def axis_of_pair(self) -> tuple[int, ...]:
        """The axis that each pair follows."""
        if self.order == "contiguous":
            return super().axis_of_pair()
        return tuple(
            axis
            for turn in range(max(self.sizes))
            for axis, size in enumerate(self.sizes)
            if turn < size
        )


@dataclass(frozen=True)
class Axial(RotaryAxes):
    """Frequencies for each axis of its own, over its share of the rotated channels.

    Attributes:
        sizes: Pairs of each axis, >= 1.

    Raises:
        SettingError: The sizes are impossible, or do not fill the rotated channels.

    Paper: Rotary Position Embedding for Vision Transformer, https://arxiv.org/abs/2403.13298.

    Example:
        >>> from relpos import RoPE
        >>> RoPE("half", axes=Axial((2, 2))).frequencies(head_dim=8)
        (1.0, 0.01, 1.0, 0.01)
    """

    name: ClassVar[str] = "Axial"
