"""Ways to compute attention: a kernel takes q, k, v, terms, mask and positions, never a scheme."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from relpos.errors import SettingError
from relpos_torch.kernels.blockwise import blockwise
from relpos_torch.kernels.dense import dense
from relpos_torch.kernels.terms import Terms

__all__ = ["KERNELS", "choose_kernel"]

#: Every kernel by its name.
KERNELS: dict[str, Callable[..., Tensor]] = {"dense": dense, "blockwise": blockwise}

#: Pairs of a query and a key up to which all scores of a head are computed at once.
SHORT = 512 * 512


def choose_kernel(
    implementation: str,
    terms: Terms | None = None,
    Lq: int = 1,
    Lk: int = 1,
    device: torch.device | None = None,
) -> tuple[str, str]:
    """The kernel that serves a call, and why: the one asked for, or the best there is for "auto".

    Args:
        implementation: The kernel asked for.
        terms: The call's terms; None asks whether there is such a kernel at all.
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
    counted = terms is not None and terms.counted is not None
    if implementation == "blockwise" and counted:
        raise SettingError(
            "the kernel blockwise serves no places counted by the content: "
            "a place depends on all scores of its query",
            got="implementation='blockwise', counted terms",
            expected="implementation='dense'",
        )
    if implementation != "auto":
        return implementation, "asked for by name"
    if counted:
        return "dense", "only dense counts places by the content"
    if torch.compiler.is_compiling():
        return "dense", "only dense can be compiled as part of one graph"
    if device is not None and device.type != "cpu":
        return "dense", f"on {device.type} a loop over blocks waits for each of its steps"
    if Lq * Lk <= SHORT:
        return "dense", f"{Lq} x {Lk} scores of a head are few, and dense computes them at once"
    return "blockwise", f"{Lq} x {Lk} scores of a head are many, and blockwise never holds them"
