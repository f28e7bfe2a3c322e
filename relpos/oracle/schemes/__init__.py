"""The formula of each scheme for one query and one key, in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relpos.oracle.number import Leaf, Tape
from relpos.oracle.schemes.alibi import ALiBiOracle
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.oracle.schemes.beit import BEiTOracle
from relpos.oracle.schemes.continuous_bias import ContinuousBiasOracle
from relpos.oracle.schemes.cope import CoPEOracle
from relpos.oracle.schemes.deberta import DeBERTaOracle
from relpos.oracle.schemes.decomposed2d import Decomposed2DOracle
from relpos.oracle.schemes.fire import FireOracle
from relpos.oracle.schemes.forgetting_attention import ForgettingAttentionOracle
from relpos.oracle.schemes.gated_t5 import GatedT5Oracle
from relpos.oracle.schemes.kerple import KerpleOracle
from relpos.oracle.schemes.low_rank_bank import LowRankBankOracle
from relpos.oracle.schemes.music_transformer import MusicTransformerOracle
from relpos.oracle.schemes.no_position import NoPositionOracle
from relpos.oracle.schemes.rope import RoPEOracle
from relpos.oracle.schemes.sandwich import SandwichOracle
from relpos.oracle.schemes.shaw import ShawOracle
from relpos.oracle.schemes.shaw_both import ShawBothOracle
from relpos.oracle.schemes.swin2d import Swin2DOracle
from relpos.oracle.schemes.swin_v2 import SwinV2Oracle
from relpos.oracle.schemes.t5 import T5Oracle
from relpos.oracle.schemes.transformer_xl import TransformerXLOracle
from relpos.oracle.schemes.windowed import WindowedOracle
from relpos.oracle.schemes.xpos import XPosOracle
from relpos.oracle.schemes.zipformer import ZipformerOracle
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

__all__ = ["SchemeOracle", "Token", "scheme_oracle"]

_ORACLES: dict[type[Scheme], type[SchemeOracle[Any]]] = {
    NoPosition: NoPositionOracle,
    Shaw: ShawOracle,
    ShawBoth: ShawBothOracle,
    MusicTransformer: MusicTransformerOracle,
    Windowed: WindowedOracle,
    TransformerXL: TransformerXLOracle,
    Zipformer: ZipformerOracle,
    T5: T5Oracle,
    GatedT5: GatedT5Oracle,
    ALiBi: ALiBiOracle,
    Kerple: KerpleOracle,
    Sandwich: SandwichOracle,
    ContinuousBias: ContinuousBiasOracle,
    Fire: FireOracle,
    LowRankBank: LowRankBankOracle,
    DeBERTa: DeBERTaOracle,
    RoPE: RoPEOracle,
    XPos: XPosOracle,
    ForgettingAttention: ForgettingAttentionOracle,
    Swin2D: Swin2DOracle,
    SwinV2: SwinV2Oracle,
    BEiT: BEiTOracle,
    Decomposed2D: Decomposed2DOracle,
    CoPE: CoPEOracle,
}


def scheme_oracle(
    scheme: Scheme, params: Mapping[str, Leaf], tape: Tape, num_heads: int, first_head: int = 0
) -> SchemeOracle[Any]:
    """The oracle of `scheme` with these parameters, in a model of so many heads."""
    oracle = _ORACLES[type(scheme)](scheme, params, tape)
    oracle.num_heads, oracle.first_head = num_heads, first_head
    return oracle
