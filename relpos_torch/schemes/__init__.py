"""How each scheme becomes terms, in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from relpos.schemes import (
    T5,
    ALiBi,
    BEiT,
    ContinuousBias,
    CoPE,
    DeBERTa,
    Decomposed2D,
    Fire,
    ForgettingAttention,
    GatedT5,
    Kerple,
    LowRankBank,
    MusicTransformer,
    NoPosition,
    RoPE,
    Sandwich,
    Scheme,
    Shaw,
    ShawBoth,
    Swin2D,
    SwinV2,
    TransformerXL,
    Windowed,
    XPos,
    Zipformer,
)
from relpos_torch.kernels.terms import Lowered
from relpos_torch.schemes import (
    alibi,
    beit,
    continuous_bias,
    cope,
    deberta,
    decomposed2d,
    fire,
    forgetting_attention,
    gated_t5,
    kerple,
    low_rank_bank,
    music_transformer,
    no_position,
    rope,
    sandwich,
    shaw,
    shaw_both,
    swin2d,
    swin_v2,
    t5,
    transformer_xl,
    windowed,
    xpos,
    zipformer,
)
from relpos_torch.schemes.call import Call

__all__ = ["Call", "lower"]

_LOWERINGS: dict[type[Scheme], Any] = {
    NoPosition: no_position.lower,
    Shaw: shaw.lower,
    ShawBoth: shaw_both.lower,
    MusicTransformer: music_transformer.lower,
    Windowed: windowed.lower,
    TransformerXL: transformer_xl.lower,
    Zipformer: zipformer.lower,
    T5: t5.lower,
    GatedT5: gated_t5.lower,
    ALiBi: alibi.lower,
    Kerple: kerple.lower,
    Sandwich: sandwich.lower,
    ContinuousBias: continuous_bias.lower,
    Fire: fire.lower,
    LowRankBank: low_rank_bank.lower,
    DeBERTa: deberta.lower,
    RoPE: rope.lower,
    XPos: xpos.lower,
    ForgettingAttention: forgetting_attention.lower,
    Swin2D: swin2d.lower,
    SwinV2: swin_v2.lower,
    BEiT: beit.lower,
    Decomposed2D: decomposed2d.lower,
    CoPE: cope.lower,
}


def lower(scheme: Scheme, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """Apply a scheme with these parameters to one call."""
    lowered: Lowered = _LOWERINGS[type(scheme)](scheme, params, call)
    return lowered
