"""The small network of some schemes: from a number per distance, or per pair, to a bias."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["ACTIVATIONS", "network"]

#: Every activation by its name.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": jax.nn.silu,
    "relu": jax.nn.relu,
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "tanh": jnp.tanh,
}


def network(
    params: tuple[Array, ...], x: Float[Array, "*L"], activation: str
) -> Float[Array, "*L"]:
    """One head's answers, with its parameters in the order of their table."""
    *layers, output_kernel, output_bias = params
    hidden = x.reshape(-1, 1)
    for kernel, bias in zip(layers[::2], layers[1::2], strict=True):
        hidden = ACTIVATIONS[activation](hidden @ kernel + bias[None])
    return (hidden @ output_kernel + output_bias).reshape(x.shape)
