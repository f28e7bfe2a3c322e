"""How each scheme becomes terms, in JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax import Array

from relpos.schemes import T5, NoPosition, RoPE, Scheme, Shaw, Windowed, XPos
from relpos_jax.kernels.positions import Positions
from relpos_jax.kernels.terms import Lowered
from relpos_jax.schemes import no_position, rope, shaw, t5, windowed, xpos

__all__ = ["lower"]

_LOWERINGS: dict[type[Scheme], Any] = {
    NoPosition: no_position.lower,
    Shaw: shaw.lower,
    Windowed: windowed.lower,
    T5: t5.lower,
    RoPE: rope.lower,
    XPos: xpos.lower,
}


def lower(
    scheme: Scheme,
    params: Mapping[str, Array],
    q: Array,
    k: Array,
    positions: Positions,
    scale: float,
) -> Lowered:
    """Apply a scheme to one call.

    Args:
        scheme: The scheme.
        params: Its parameters.
        q: Queries [B, Lq, H, d].
        k: Keys [B, Lk, G, d].
        positions: Where they stand.
        scale: The factor on <q, k>.
    """
    lowered: Lowered = _LOWERINGS[type(scheme)](scheme, params, q, k, positions, scale)
    return lowered
