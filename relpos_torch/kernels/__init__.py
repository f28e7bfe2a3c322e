"""Ways to compute attention: a kernel takes q, k, v, terms, mask and positions, never a scheme."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from relpos.errors import SettingError
from relpos.schemes import Scheme
from relpos_torch.kernels.blockwise import blockwise
from relpos_torch.kernels.dense import dense
from relpos_torch.kernels.fused import fused

__all__ = ["KERNELS", "Choice", "choose_kernel"]

#: Every kernel by its name.
KERNELS: dict[str, Callable[..., Tensor]] = {
    "dense": dense,
    "blockwise": blockwise,
    "fused": fused,
}

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
    scheme: Scheme | None = None,
    Lq: int = 1,
    Lk: int = 1,
    device: torch.device | None = None,
) -> Choice:
    """The kernel that serves a call, and why: the one asked for, or the best there is for "auto".

    Args:
        implementation: The kernel asked for.
        scheme: The call's scheme; None asks whether there is such a kernel at all.
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
    counted = scheme is not None and scheme.dense_only
    plain = scheme is not None and scheme.content_only
    if implementation == "blockwise" and counted:
        raise SettingError(
            "the kernel blockwise serves no places counted by the content: "
            "a place depends on all scores of its query",
            got="implementation='blockwise', counted terms",
            expected="implementation='dense'",
        )
    if implementation == "fused" and scheme is not None and not plain:
        raise SettingError(
            "the kernel fused serves schemes whose positions go into queries and keys alone",
            got=f"implementation='fused', {scheme.name}",
            expected=["auto", *scheme.kernels()],
        )
    if implementation != "auto":
        return Choice(implementation, "asked for by name")
    if counted:
        return Choice("dense", "only dense counts places by the content")
    compiling = torch.compiler.is_compiling()
    if plain and (compiling or Lq * Lk > SHORT):
        return Choice("fused", "positions are in queries and keys: torch's own attention serves")
    if compiling:
        return Choice("dense", "a compiled graph takes dense whole, and would be cut at blockwise")
    if device is not None and device.type != "cpu":
        return Choice("dense", f"on {device.type} a loop over blocks waits for each of its steps")
    if Lq * Lk <= SHORT:
        return Choice(
            "dense", f"{Lq} x {Lk} scores of a head are few, and dense computes them at once"
        )
    return Choice(
        "blockwise", f"{Lq} x {Lk} scores of a head are many, and blockwise never holds them"
    )
