"""Relative positions for attention in PyTorch: the twin of `relpos_jax`."""

from relpos_torch.cache import KVCache
from relpos_torch.functional import attention, explain, relative_scores
from relpos_torch.layer import RelativeAttention

__all__ = ["KVCache", "RelativeAttention", "attention", "explain", "relative_scores"]
