"""The work that is compared: schemes with the sizes that people use them at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relpos.bench.contender import Size
from relpos.schemes import (
    T5,
    ALiBi,
    DeBERTa,
    NoPosition,
    RoPE,
    Scheme,
    Shaw,
    TransformerXL,
)

__all__ = ["WORKS", "Work"]


@dataclass(frozen=True)
class Work:
    """Attention with one scheme.

    Attributes:
        name: What people call it.
        scheme: The scheme at a size.
        products: As a contender's.
        layer: Measured as a layer too.
        quick: Part of a quick run.
        longest: As a contender's.
    """

    name: str
    scheme: Callable[[Size], Scheme]
    products: tuple[int, int] = (2, 7)
    layer: bool = True
    quick: bool = True
    longest: int = 32768


def _every_distance(size: Size) -> Scheme:
    return Shaw(size.L - 1, size.L - 1, values=False)


WORKS = (
    Work("no positions", lambda size: NoPosition(), layer=False),
    Work("Shaw, every distance", _every_distance, products=(3, 11)),
    Work("Shaw, reach 64", lambda size: Shaw(64, 64, values=False), layer=False, quick=False),
    Work("Shaw, reach 64 and 8", lambda size: Shaw(64, 8, values=False), quick=False),
    Work("T5", lambda size: T5()),
    Work("ALiBi", lambda size: ALiBi()),
    Work("RoPE", lambda size: RoPE("half"), layer=False),
    Work(
        "Transformer-XL",
        lambda size: TransformerXL("interleaved", width=size.H * size.d),
        products=(3, 11),
        quick=False,
    ),
    Work("DeBERTa", lambda size: DeBERTa(size.H * size.d), products=(4, 15), quick=False),
)
