"""Ways to compute attention: a kernel takes q, k, v, terms, mask and positions, never a scheme."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from relpos.errors import SettingError
from relpos_torch.kernels.blockwise import blockwise
from relpos_torch.kernels.dense import dense

__all__ = ["KERNELS", "Choice", "choose_kernel"]

#: Every kernel by its name.
KERNELS: dict[str, Callable[..., Tensor]] = {"dense": dense, "blockwise": blockwise}

#: Pairs of a query and a key up to which all scores of a head are computed at once.
SHORT = 256 * 256


class Choice(NamedTuple):
    """The kernel of a call.

    Attributes:
        kernel: Its name.
        reason: Why it is this one, in words.
    """

    kernel: str
    reason: str


def choose_kernel(
    implementation: str,
    counted: bool = False,
    Lq: int = 1,
    Lk: int = 1,
    device: torch.device | None = None,
) -> Choice:
    """The kernel that serves a call, and why: the one asked for, or the best there is for "auto".

    Args:
        implementation: The kernel asked for.
        counted: Whether the content counts the places of a query's keys.
        Lq: Number of queries.
        Lk: Number of keys.
        device: Where the call's tensors are; None is the CPU.

    Raises:
        SettingError: There is no such kernel, or it does not serve the call.
    """
    if implementation not in ("auto", *KERNELS):
        raise SettingError(
            "implementation names a kernel", got=implementation, expected=["auto", *KERNELS]
        )
    if implementation == "blockwise" and counted:
        raise SettingError(
            "the kernel blockwise serves no places counted by the content: "
            "a place depends on all scores of its query",
            got="implementation='blockwise', counted terms",
            expected="implementation='dense'",
        )
    if implementation != "auto":
        return Choice(implementation, "asked for by name")
    if counted:
        return Choice("dense", "only dense counts places by the content")
    if torch.compiler.is_compiling():
        return Choice("dense", "only dense can be compiled as part of one graph")
    if device is not None and device.type != "cpu":
        return Choice("dense", f"on {device.type} a loop over blocks waits for each of its steps")
    if Lq * Lk <= SHORT:
        return Choice(
            "dense", f"{Lq} x {Lk} scores of a head are few, and dense computes them at once"
        )
    return Choice(
        "blockwise", f"{Lq} x {Lk} scores of a head are many, and blockwise never holds them"
    )
