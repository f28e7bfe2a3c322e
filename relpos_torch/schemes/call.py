"""What a scheme is applied to."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from relpos_torch.kernels.positions import Positions

__all__ = ["Call"]


@dataclass(frozen=True)
class Call:
    """One attention call, in working precision.

    Attributes:
        q: Queries [B, H, Lq, d].
        k: Keys [B, G, Lk, d].
        positions: Where they stand.
        scale: The factor on <q, k>.
        query_features: What the scheme reads of each query's token, if anything.
        key_features: What the scheme reads of each key's token, if anything.
    """

    q: Float[Tensor, "B H Lq d"]
    k: Float[Tensor, "B G Lk d"]
    positions: Positions
    scale: float
    query_features: Float[Tensor, "B H Lq e"] | None = None
    key_features: Float[Tensor, "B H Lk f"] | None = None
