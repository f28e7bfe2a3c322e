"""Forgetting attention (Lin et al., 2025): every token fades what stands before it, by its gate.

    f[b,h,l]       = sigmoid(forget[b,h,l])          forget = x W + b, one number per head and token
    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]> + sum of log f[b,h,l] over p_j < p_l <= p_i
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]

p is a token's position and x the keys' input. The sum runs over every key that stands after key j
and not after query i, whether i may attend to it or not. It is meant for causal attention, though
nothing refuses another: for a key that stands after its query the sum is empty, so that it is read
as if nothing were forgotten. Sequences that share a row need positions of their own, such as
0 .. 99 and 100 .. 149, so that no token of the one stands between two of the other.

A fresh layer has b = 5, so that f is near 1 and it begins by remembering.

Computed it is as the difference of two running sums, which in float32 would have no digits left
for the tokens near the end of a long input: what the running sum loses to rounding is summed beside
it, so that the error is one of the tokens between j and i alone, however long the input.

| our name        | Forgetting Transformer (FoX) | elsewhere                                       |
|-----------------|------------------------------|-------------------------------------------------|
| `forget_kernel` | `fgate_proj.weight` [H, D]   | x-transformers `data_dependent_alibi`           |
| `forget_bias`   | `fgate_proj.bias` [H], 0     | 5 there, `bias_init`                            |
| log f           | `log_fgate`                  | `forget_gates`                                  |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relpos.schemes.base import Parameter, Projection, Scheme, constant

__all__ = ["ForgettingAttention"]


@dataclass(frozen=True)
class ForgettingAttention(Scheme):
    """A forget gate per head and token, whose logarithms add up between a key and its query.

    The formula and the names used elsewhere stand at the top of this module. A layer makes what the
    gates read by a projection of its own; the functions take it as `key_features`, one number per
    head and key. It must be finite: -1e4 forgets everything, 1e4 nothing.

    Paper: Forgetting Transformer: Softmax Attention with a Forget Gate,
    https://arxiv.org/abs/2503.02130.

    Example:
        >>> from relpos import AttentionSettings
        >>> layer = AttentionSettings(64, 4, ForgettingAttention(), causal=True)
        >>> [p.shape for p in layer.parameters() if p.name.startswith("forget")]
        [(64, 4, 1), (4, 1)]
    """

    name: ClassVar[str] = "ForgettingAttention"
    paper: ClassVar[str] = "Lin et al., 2025"
    url: ClassVar[str] = "https://arxiv.org/abs/2503.02130"
    used_by: ClassVar[tuple[str, ...]] = ("FoX",)
    extrapolates: ClassVar[bool] = True
    causal_only: ClassVar[bool] = True

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """None beside the projection `forget`."""
        return ()

    @property
    def key_projection(self) -> Projection:
        """`forget`: one number per head and token; an empty slot of a cache forgets nothing."""
        return Projection("forget", width=1, bias_init=constant(5.0), empty=1e4)
