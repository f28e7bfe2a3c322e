"""Ways to compute attention: a kernel takes q, k, v, terms, mask and positions, never a scheme."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.export
from jax import Array

from relpos.errors import SettingError
from relpos.schemes import Scheme
from relpos_jax.kernels.blockwise import blockwise
from relpos_jax.kernels.dense import dense

__all__ = ["KERNELS", "Choice", "choose_kernel"]

#: Every kernel by its name.
KERNELS: dict[str, Callable[..., Array]] = {"dense": dense, "blockwise": blockwise}

#: Pairs of a query and a key up to which all scores of a head are computed at once.
SHORT = 512 * 512


class Choice(NamedTuple):
    """The kernel of a call.

    Attributes:
        kernel: Its name.
        reason: Why it is this one, in words.
    """

    kernel: str
    reason: str


def choose_kernel(
    implementation: str, scheme: Scheme | None = None, Lq: int = 1, Lk: int = 1
) -> Choice:
    """The kernel that serves a call, and why: the one asked for, or the best there is for "auto".

    Args:
        implementation: The kernel asked for.
        scheme: The call's scheme; None asks whether there is such a kernel at all.
        Lq: Number of queries.
        Lk: Number of keys.

    Raises:
        SettingError: There is no such kernel, or it does not serve the call.
    """
    if implementation not in ("auto", *KERNELS):
        raise SettingError(
            "implementation names a kernel", got=implementation, expected=["auto", *KERNELS]
        )
    counted = scheme is not None and scheme.dense_only
    by_letter = any(map(jax.export.is_symbolic_dim, (Lq, Lk)))
    if implementation == "blockwise":
        if counted:
            raise SettingError(
                "the kernel blockwise serves no places counted by the content: "
                "a place depends on all scores of its query",
                got="implementation='blockwise', counted terms",
                expected="implementation='dense'",
            )
        if by_letter:
            raise SettingError(
                "the kernel blockwise needs lengths that are numbers",
                got=f"Lq={Lq}, Lk={Lk}",
                expected="implementation='dense'",
            )
    if implementation != "auto":
        return Choice(implementation, "asked for by name")
    if counted:
        return Choice("dense", "only dense counts places by the content")
    if by_letter:
        return Choice("dense", "only dense serves lengths that are known by letter")
    if Lq * Lk <= SHORT:
        return Choice(
            "dense", f"{Lq} x {Lk} scores of a head are few, and dense computes them at once"
        )
    return Choice(
        "blockwise", f"{Lq} x {Lk} scores of a head are many, and blockwise never holds them"
    )
