"""Fresh parameters in the distribution that the settings state."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.nn.initializers import Initializer

from relpos.schemes import Init

__all__ = ["initializer"]


def initializer(init: Init) -> Initializer:
    """A JAX initializer (key, shape, dtype) for the distribution."""

    def initialise(
        key: jax.Array, shape: Any, dtype: Any = jnp.float32, out_sharding: Any = None
    ) -> jax.Array:
        if init.kind == "normal":
            return init.scale * jax.random.normal(key, shape, dtype)
        if init.kind == "uniform":
            return jax.random.uniform(key, shape, dtype, -init.scale, init.scale)
        if init.kind == "constant":
            return jnp.full(shape, init.scale, dtype)
        if init.kind == "each":
            return jnp.asarray(init.laid_out(tuple(shape)), dtype)
        return jnp.zeros(shape, dtype)

    return initialise
