"""Ways to compute attention: a kernel takes q, k, v, terms, mask and positions, never a scheme."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from relpos.errors import SettingError
from relpos_torch.kernels.dense import dense

__all__ = ["KERNELS", "choose_kernel"]

#: Every kernel by its name.
KERNELS: dict[str, Callable[..., Tensor]] = {"dense": dense}


def choose_kernel(implementation: str) -> str:
    """The kernel that serves the call: the one asked for, or the best there is for "auto"."""
    if implementation == "auto":
        return "dense"
    if implementation not in KERNELS:
        raise SettingError(
            "implementation names a kernel", got=implementation, expected=["auto", *KERNELS]
        )
    return implementation
