"""The formula of each scheme for one query and one key, in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relpos.oracle.number import Leaf, Tape
from relpos.oracle.schemes.base import SchemeOracle, Token
from relpos.oracle.schemes.deberta import DeBERTaOracle
from relpos.oracle.schemes.forgetting_attention import ForgettingAttentionOracle
from relpos.oracle.schemes.no_position import NoPositionOracle
from relpos.oracle.schemes.rope import RoPEOracle
from relpos.oracle.schemes.shaw import ShawOracle
from relpos.oracle.schemes.t5 import T5Oracle
from relpos.oracle.schemes.windowed import WindowedOracle
from relpos.oracle.schemes.xpos import XPosOracle
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

__all__ = ["SchemeOracle", "Token", "scheme_oracle"]

_ORACLES: dict[type[Scheme], type[SchemeOracle[Any]]] = {
    NoPosition: NoPositionOracle,
    Shaw: ShawOracle,
    Windowed: WindowedOracle,
    T5: T5Oracle,
    DeBERTa: DeBERTaOracle,
    RoPE: RoPEOracle,
    XPos: XPosOracle,
    ForgettingAttention: ForgettingAttentionOracle,
}


def scheme_oracle(scheme: Scheme, params: Mapping[str, Leaf], tape: Tape) -> SchemeOracle[Any]:
    """The oracle of `scheme` with these parameters."""
    return _ORACLES[type(scheme)](scheme, params, tape)
