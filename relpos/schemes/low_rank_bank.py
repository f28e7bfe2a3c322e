"""Low-rank bank (Inkling, 2026): a few learned profiles over distances, mixed anew by every query.

    f[b,h,i]       = x[b,i] position_query_kernel[:, h]                 `rank` numbers
    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]>
                     + <f[b,h,i], bank[h, j-i+E-1]>                     if 0 <= i - j < E
                     + 0                                                otherwise
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]

x is the layer's input, E the `extent`; a bank that all heads share has h = 0. The functions take f
as `query_features`. The term is added after the scaling. Column m of the bank is a profile, a bias
per distance back from the query; f says how much of each profile a query takes. Keys after the
query get nothing: the scheme is meant for causal attention, though nothing refuses another.

Inkling has RMS norms on q and k, and with them `scale` 1 / d. Where it also lengthens queries and
this term by the logarithm of the position, and where Inkling 2 limits the length of f, it is
another scheme.

| our name                             | Inkling in transformers, vLLM, SGLang              |
|--------------------------------------|----------------------------------------------------|
| `bank` [1, E, rank], ascending rows  | `rel_logits_proj.proj` [rank, E], columns reversed |
| `position_query_kernel` [D, H, rank] | `r_proj.weight` [H * rank, D]                      |
| `rank`                               | `d_rel`                                            |
| `extent`                             | `rel_extent`; the window in layers with a window   |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relpos.schemes.base import Parameter, Projection, Scheme, normal, require

__all__ = ["LowRankBank"]


@dataclass(frozen=True)
class LowRankBank(Scheme):
    """A bias by distance back from the query, mixed from a bank of profiles by each query.

    The formula and the names used elsewhere stand at the top of this module.

    Attributes:
        rank: Profiles in the bank, and numbers that are read of each query, >= 1.
        extent: Distances with a row, E, from 0 to E - 1 positions back; beyond them all is 0.
        per_head: One bank per head; False shares one among all heads.

    Raises:
        SettingError: A number is smaller than 1.

    There is no paper; it came with the model Inkling:
    https://huggingface.co/docs/transformers/model_doc/inkling.

    Example:
        >>> [p.shape for p in LowRankBank(rank=16, extent=512).parameters(64, 128)]
        [(1, 512, 16)]
    """

    name: ClassVar[str] = "LowRankBank"
    paper: ClassVar[str] = "Thinking Machines, 2026"
    url: ClassVar[str] = "https://huggingface.co/docs/transformers/model_doc/inkling"
    used_by: ClassVar[tuple[str, ...]] = ("Inkling",)
    extrapolates: ClassVar[bool] = False

    rank: int = 16
    extent: int = 1024
    per_head: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rank", "extent"):
            value = getattr(self, name)
            require(
                value >= 1,
                f"LowRankBank.{name} counts something",
                got=value,
                expected="an int >= 1",
            )

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """`bank` [1 or H, E, rank], normal with std 0.02."""
        axes = ("heads" if self.per_head else "shared", "distance", "features")
        shape = (num_heads if self.per_head else 1, self.extent, self.rank)
        return (Parameter("bank", axes, shape, normal(0.02)),)

    @property
    def query_projection(self) -> Projection:
        """How much of each profile a query takes."""
        return Projection("position_query", width=self.rank, bias=False)
