"""Fresh parameters in the distribution that the settings state."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from relpos.schemes import Init

__all__ = ["initializer"]


def initializer(init: Init) -> Callable[[Tensor], None]:
    """A function that fills a tensor in place, drawing from torch's global generator."""

    def initialise(tensor: Tensor) -> None:
        if init.kind == "normal":
            tensor.normal_(0.0, init.scale)
        elif init.kind == "uniform":
            tensor.uniform_(-init.scale, init.scale)
        elif init.kind == "constant":
            tensor.fill_(init.scale)
        elif init.kind == "each":
            tensor.copy_(torch.from_numpy(init.laid_out(tuple(tensor.shape))))
        else:
            tensor.zero_()

    return initialise
