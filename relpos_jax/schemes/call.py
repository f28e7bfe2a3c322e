"""What a scheme is applied to."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Array, Float

from relpos_jax.kernels.positions import Positions

__all__ = ["Call"]


@dataclass(frozen=True)
class Call:
    """One attention call, in working precision.

    Attributes:
        q: Queries [B, Lq, H, d].
        k: Keys [B, Lk, G, d].
        positions: Where they stand.
        scale: The factor on <q, k>.
        query_features: What the scheme reads of each query's token, if anything.
        key_features: What the scheme reads of each key's token, if anything.
    """

    q: Float[Array, "B Lq H d"]
    k: Float[Array, "B Lk G d"]
    positions: Positions
    scale: float
    query_features: Float[Array, "B Lq H e"] | None = None
    key_features: Float[Array, "B Lk H f"] | None = None
