"""Who is measured: something that computes attention at a size, in one framework."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Calls", "Contender", "Size", "describe"]


@dataclass(frozen=True)
class Size:
    """Batch B, heads H, length L, head width d; layers have width D = H * d.

    Attributes:
        B: Batch.
        H: Heads.
        L: Queries, and as many keys.
        d: Head width.
        dtype: By numpy's name, or bfloat16.
        device: `cpu` or `cuda`.
    """

    B: int = 1
    H: int = 8
    L: int = 1024
    d: int = 64
    dtype: str = "float32"
    device: str = "cpu"

    @property
    def product(self) -> float:
        """Operations of one product of queries with keys: a multiplication and an addition each."""
        return 2.0 * self.B * self.H * self.L * self.L * self.d


@dataclass(frozen=True)
class Calls:
    """What is timed: each computes, waits until it is done, and gives nothing back.

    Attributes:
        forward: The output.
        both: The output and the gradients of every input and parameter; None where there are none.
    """

    forward: Callable[[], None]
    both: Callable[[], None] | None


@dataclass(frozen=True)
class Contender:
    """One line of a comparison.

    Attributes:
        name: What it is, unique.
        framework: `torch` or `jax`.
        form: `function` of q, k and v, or `layer` with its projections.
        work: What it computes; only the same work is compared.
        build: Makes its calls at a size.
        ours: Whether it is relpos.
        products: Products of the size of queries by keys by width that the work needs, forwards and
            with backward: 2 and 7 for plain attention, which recomputes one.
        needs: Packages, by the name of their import.
        longest: The longest length at which it is worth its time and memory.
        quick: Part of a quick run.
    """

    name: str
    framework: str
    form: str
    work: str
    build: Callable[[Size], Calls]
    ours: bool = False
    products: tuple[int, int] = (2, 7)
    needs: tuple[str, ...] = ()
    longest: int = 32768
    quick: bool = True

    @property
    def missing(self) -> tuple[str, ...]:
        """Packages that it needs and that are not installed."""
        return tuple(name for name in self.needs if importlib.util.find_spec(name) is None)


def describe(error: BaseException) -> str:
    """An error in one line."""
    text: Any = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {text[0][:160]}"
