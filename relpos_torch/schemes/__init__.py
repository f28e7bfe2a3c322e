"""How each scheme becomes terms, in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from relpos.schemes import (
    T5,
    DeBERTa,
    ForgettingAttention,
    NoPosition,
    RoPE,
    Scheme,
    Shaw,
    Windowed,
    XPos,
)
from relpos_torch.kernels.terms import Lowered
from relpos_torch.schemes import (
    deberta,
    forgetting_attention,
    no_position,
    rope,
    shaw,
    t5,
    windowed,
    xpos,
)
from relpos_torch.schemes.call import Call

__all__ = ["Call", "lower"]

_LOWERINGS: dict[type[Scheme], Any] = {
    NoPosition: no_position.lower,
    Shaw: shaw.lower,
    Windowed: windowed.lower,
    T5: t5.lower,
    DeBERTa: deberta.lower,
    RoPE: rope.lower,
    XPos: xpos.lower,
    ForgettingAttention: forgetting_attention.lower,
}


def lower(scheme: Scheme, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """Apply a scheme with these parameters to one call."""
    lowered: Lowered = _LOWERINGS[type(scheme)](scheme, params, call)
    return lowered
