"""Fresh parameters in the distribution that the settings state."""

from __future__ import annotations

from torch import Tensor

from relpos.schemes import Init

__all__ = ["initialise"]


def initialise(tensor: Tensor, init: Init) -> None:
    """Fill a tensor in place from the distribution, with torch's global generator."""
    if init.kind == "normal":
        tensor.normal_(0.0, init.scale)
    elif init.kind == "uniform":
        tensor.uniform_(-init.scale, init.scale)
    else:
        tensor.zero_()
