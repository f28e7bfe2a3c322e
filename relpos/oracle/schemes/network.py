"""The small network of some schemes, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relpos.oracle.functions import gelu, rectified, silu, tanh
from relpos.oracle.number import Leaf, Number

__all__ = ["answer", "hidden_layers"]

_ACTIVATIONS: dict[str, Callable[[Number], Number]] = {
    "silu": silu,
    "relu": rectified,
    "gelu": gelu,
    "tanh": tanh,
}


def hidden_layers(params: Mapping[str, Leaf], x: Number, depth: int, activation: str) -> Number:
    """What the last hidden layer makes of x, a vector of one number."""
    for n in range(1, depth + 1):
        end = "" if n == 1 else f"_{n}"
        kernel, bias = params[f"hidden_kernel{end}"][(0,)], params[f"hidden_bias{end}"][(0,)]
        x = _ACTIVATIONS[activation](x.through(kernel) + bias)
    return x


def answer(params: Mapping[str, Leaf], h: int, hidden: Number) -> Number:
    """The bias of one head."""
    return hidden.dot(params["output_kernel"][(h,)]) + params["output_bias"][(h,)]
