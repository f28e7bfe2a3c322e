"""T5 (Raffel et al., 2020): one learned bias per head and bucket of distances.

    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]> + bias_table[h, bucket(j-i)],   scale = 1
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]

Buckets are exact for short distances and logarithmic up to `max_distance`; the rule, in whole
numbers, is `relpos.distance.t5_bucket`. The bias is added after the scaling, and T5 itself does not
scale: `scale` is 1 unless the layer says otherwise (MPNet scales by 1 / sqrt(d)).

| our name                   | T5, MT5, UMT5 in transformers          | T5X, Flaxformer         |
|----------------------------|----------------------------------------|-------------------------|
| `bias_table` [H, N]        | `relative_attention_bias.weight` [N, H] | `rel_embedding` [H, N]  |
| `num_buckets`              | `relative_attention_num_buckets`        | `num_buckets`           |
| `max_distance`             | `relative_attention_max_distance`       | `max_distance`          |
| `bidirectional`            | `not is_decoder`                        | `bidirectional`         |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relpos.schemes.base import Parameter, Scheme, normal, require

__all__ = ["T5", "bucket_table", "check_buckets"]


def check_buckets(scheme: str, num_buckets: int, max_distance: int, bidirectional: bool) -> None:
    """Validate the settings that every scheme with T5's buckets shares."""
    smallest = 4 if bidirectional else 2
    require(
        num_buckets >= smallest and (num_buckets % 2 == 0 or not bidirectional),
        f"{scheme}.num_buckets must leave an exact bucket on each side",
        got=num_buckets,
        expected=f">= {smallest}" + (" and even" if bidirectional else ""),
    )
    exact = num_buckets // (4 if bidirectional else 2)
    require(
        max_distance > exact,
        f"{scheme}.max_distance must lie beyond the exact buckets",
        got=max_distance,
        expected=f"> {exact}",
    )


def bucket_table(num_buckets: int, num_heads: int, head_dim: int) -> Parameter:
    """`bias_table` [H, N]: a number per head and bucket."""
    init = normal((num_heads * head_dim) ** -0.5)
    return Parameter("bias_table", ("heads", "bucket"), (num_heads, num_buckets), init)


@dataclass(frozen=True)
class T5(Scheme):
    """A learned scalar bias per head and bucket of distances.

    The formula and the names used elsewhere stand at the top of this module.

    Attributes:
        num_buckets: Rows of the table, N. Even and >= 4 if bidirectional, else >= 2.
        max_distance: Distances from here on share the last bucket, in positions; larger than the
            number of exact buckets (a quarter of `num_buckets`, or half if not bidirectional).
        bidirectional: Half of the buckets for keys after the query. False gives every key after
            the query the bucket of distance 0, as in T5's decoder.

    Raises:
        SettingError: The buckets cannot be laid out.

    Paper: Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer,
    https://arxiv.org/abs/1910.10683.

    Example:
        >>> T5().parameters(num_heads=8, head_dim=64)[0].shape
        (8, 32)
    """

    name: ClassVar[str] = "T5"
    paper: ClassVar[str] = "Raffel et al., 2020"
    url: ClassVar[str] = "https://arxiv.org/abs/1910.10683"
    used_by: ClassVar[tuple[str, ...]] = ("T5", "FLAN-T5", "mT5", "UMT5", "MPNet")
    extrapolates: ClassVar[bool] = False

    num_buckets: int = 32
    max_distance: int = 128
    bidirectional: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_buckets(self.name, self.num_buckets, self.max_distance, self.bidirectional)

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """`bias_table` [H, N], normal with std (H * d) ** -0.5."""
        return (bucket_table(self.num_buckets, num_heads, head_dim),)

    def scale(self, head_dim: int) -> float:
        """1: T5 folds the scale into its initialisation."""
        return 1.0
