"""Gated T5 (WavLM, Chen et al., 2022): T5's bias, by a factor that each query sets for itself.

    f[b,h,i]       = x_h[b,i] gate_kernel + gate_bias                   8 numbers
    a, c           = sigmoid(f_1 + .. + f_4), sigmoid(f_5 + .. + f_8)
    gate[b,h,i]    = a * (c * gate_scale[h] - 1) + 2
    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]> + gate[b,h,i] * bias_table[h, bucket(j-i)]
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]

x_h[b,i] are channels h D/H .. (h+1) D/H - 1 of the layer's input; one kernel [D/H, 8] serves all
heads. The functions take f as `query_features`. The buckets are T5's: `relpos.distance.t5_bucket`.

The paper writes the same factor as 1 + u + (1 - u) c `gate_scale`, with u = 1 - a, and lets the
gates read q; the released code, as all checkpoints need, reads the layer's input.

| our name                          | WavLM in transformers                              |
|-----------------------------------|----------------------------------------------------|
| `bias_table` [H, N]               | `rel_attn_embed.weight` [N, H], of the first layer |
| `gate_kernel` [D/H, 8]            | `gru_rel_pos_linear.weight` [8, D/H]               |
| `gate_bias` [8]                   | `gru_rel_pos_linear.bias`                          |
| `gate_scale` [H]                  | `gru_rel_pos_const` [1, H, 1, 1]                   |
| `num_buckets`                     | `num_buckets`                                      |
| `max_distance`                    | `max_bucket_distance`                              |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relpos.schemes.base import Parameter, Projection, Scheme, constant
from relpos.schemes.t5 import bucket_table, check_buckets

__all__ = ["GatedT5"]


@dataclass(frozen=True)
class GatedT5(Scheme):
    """A learned bias per head and bucket of distances, times a gate per query.

    The formula and the names used elsewhere stand at the top of this module. The defaults are
    WavLM's, where all layers share one `bias_table`. In a fresh layer a gate lies between 1 and 2.

    Attributes:
        num_buckets: Rows of the table, N. Even and >= 4 if bidirectional, else >= 2.
        max_distance: Distances from here on share the last bucket, in positions; larger than the
            number of exact buckets (a quarter of `num_buckets`, or half if not bidirectional).
        bidirectional: Half of the buckets for keys after the query. False gives every key after
            the query the bucket of distance 0.

    Raises:
        SettingError: The buckets cannot be laid out, or the width of a layer's input is no multiple
            of its heads.

    Papers: WavLM: Large-Scale Self-Supervised Pre-Training for Full Stack Speech Processing,
    https://arxiv.org/abs/2110.13900; the gate is from XLM-E: Cross-lingual Language Model
    Pre-training via ELECTRA, https://arxiv.org/abs/2106.16138.

    Example:
        >>> [p.shape for p in GatedT5().parameters(num_heads=12, head_dim=64)]
        [(12, 320), (12,)]
    """

    name: ClassVar[str] = "GatedT5"
    paper: ClassVar[str] = "Chen et al., 2022"
    url: ClassVar[str] = "https://arxiv.org/abs/2110.13900"
    used_by: ClassVar[tuple[str, ...]] = ("WavLM",)
    extrapolates: ClassVar[bool] = False

    num_buckets: int = 320
    max_distance: int = 800
    bidirectional: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_buckets(self.name, self.num_buckets, self.max_distance, self.bidirectional)

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """`bias_table` [H, N], normal with std (H * d) ** -0.5, and `gate_scale` [H], ones."""
        gate_scale = Parameter("gate_scale", ("heads",), (num_heads,), constant(1.0))
        return (bucket_table(self.num_buckets, num_heads, head_dim), gate_scale)

    @property
    def query_projection(self) -> Projection:
        """The 8 numbers that a query's gates are made of."""
        return Projection("gate", width=8, per_head=True)
