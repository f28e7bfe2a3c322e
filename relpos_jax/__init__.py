"""Relative positions for attention in JAX and Flax: the twin of `relpos_torch`.

The layers stand in `relpos_jax.nnx` and `relpos_jax.linen`.
"""

from relpos_jax.cache import KVCache
from relpos_jax.functional import attention, explain, relative_scores

__all__ = ["KVCache", "attention", "explain", "relative_scores"]
