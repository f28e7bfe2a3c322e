"""Host computations that a compiler takes as constants instead of tracing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["constant"]

P = ParamSpec("P")
R = TypeVar("R")


def constant(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function of settings as `torch.compiler.assume_constant_result` does.

    That one imports the compiler to set a mark, which would double the time of importing us. JAX
    needs no such mark: what numpy computes is a constant there anyway.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
