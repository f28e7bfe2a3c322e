"""The small network of some schemes: from a number per distance, or per pair, to one per head."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["ACTIVATIONS", "network"]

#: Every activation by its name.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": torch.nn.functional.silu,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "tanh": torch.tanh,
}


def network(
    params: tuple[Tensor, ...], x: Float[Tensor, "*B Lq Lk"], activation: str
) -> Float[Tensor, "*B H Lq Lk"]:
    """The network's answers, with its parameters in the order of their table."""
    *layers, output_kernel, output_bias = params
    hidden = x.unsqueeze(-1)
    for kernel, bias in zip(layers[::2], layers[1::2], strict=True):
        hidden = ACTIVATIONS[activation](hidden @ kernel[0] + bias[0])
    return (hidden @ output_kernel.mT + output_bias).movedim(-1, -3)
