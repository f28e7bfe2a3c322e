"""What each scheme is: settings, parameters, convention. One small file each."""

from __future__ import annotations

from typing import Any

from relpos.errors import SettingError
from relpos.schemes.alibi import ALiBi
from relpos.schemes.base import Init, Parameter, Scheme
from relpos.schemes.beit import BEiT
from relpos.schemes.continuous_bias import ContinuousBias
from relpos.schemes.cope import CoPE
from relpos.schemes.deberta import DeBERTa
from relpos.schemes.decomposed2d import Decomposed2D
from relpos.schemes.fire import Fire
from relpos.schemes.forgetting_attention import ForgettingAttention
from relpos.schemes.gated_t5 import GatedT5
from relpos.schemes.kerple import Kerple
from relpos.schemes.low_rank_bank import LowRankBank
from relpos.schemes.music_transformer import MusicTransformer
from relpos.schemes.no_position import NoPosition
from relpos.schemes.rope import RoPE
from relpos.schemes.rope_axes import Axial, Sections
from relpos.schemes.rope_scaling import (
    DynamicNTK,
    LinearScaling,
    Llama3Scaling,
    LongRoPE,
    NTKScaling,
    YaRN,
)
from relpos.schemes.sandwich import Sandwich
from relpos.schemes.shaw import Shaw
from relpos.schemes.shaw_both import ShawBoth
from relpos.schemes.swin2d import Swin2D
from relpos.schemes.swin_v2 import SwinV2
from relpos.schemes.t5 import T5
from relpos.schemes.transformer_xl import TransformerXL
from relpos.schemes.windowed import Windowed
from relpos.schemes.xpos import XPos
from relpos.schemes.zipformer import Zipformer

__all__ = [
    "SCHEMES",
    "T5",
    "ALiBi",
    "Axial",
    "BEiT",
    "CoPE",
    "ContinuousBias",
    "DeBERTa",
    "Decomposed2D",
    "DynamicNTK",
    "Fire",
    "ForgettingAttention",
    "GatedT5",
    "Init",
    "Kerple",
    "LinearScaling",
    "Llama3Scaling",
    "LongRoPE",
    "LowRankBank",
    "MusicTransformer",
    "NTKScaling",
    "NoPosition",
    "Parameter",
    "RoPE",
    "Sandwich",
    "Scheme",
    "Sections",
    "Shaw",
    "ShawBoth",
    "Swin2D",
    "SwinV2",
    "TransformerXL",
    "Windowed",
    "XPos",
    "YaRN",
    "Zipformer",
    "find_scheme",
    "scheme_from_dict",
]

#: Every scheme by its name.
SCHEMES: dict[str, type[Scheme]] = {
    scheme.name: scheme
    for scheme in (
        NoPosition,
        Shaw,
        ShawBoth,
        MusicTransformer,
        Windowed,
        TransformerXL,
        Zipformer,
        T5,
        GatedT5,
        ALiBi,
        Kerple,
        Sandwich,
        ContinuousBias,
        Fire,
        LowRankBank,
        DeBERTa,
        RoPE,
        XPos,
        ForgettingAttention,
        Swin2D,
        SwinV2,
        BEiT,
        Decomposed2D,
        CoPE,
    )
}


def find_scheme(name: str) -> type[Scheme]:
    """The scheme of that name, for people who type it: small and capital letters are the same.

    Example:
        >>> find_scheme("rope").name
        'RoPE'
    """
    for known, scheme in SCHEMES.items():
        if known.lower() == name.lower():
            return scheme
    raise SettingError(
        "a scheme must be known by name", got=repr(name), expected="one of " + ", ".join(SCHEMES)
    )


def scheme_from_dict(data: dict[str, Any]) -> Scheme:
    """The scheme whose `to_dict` gave `data`.

    Example:
        >>> scheme_from_dict(T5(num_buckets=8).to_dict())
        T5(num_buckets=8, max_distance=128, bidirectional=True)
    """
    if not isinstance(data, dict):
        raise SettingError(
            "stored settings of a scheme are a table", got=repr(data), expected="what to_dict gives"
        )
    name = data.get("scheme")
    if name not in SCHEMES:
        raise SettingError("a scheme must be known by name", got=name, expected=sorted(SCHEMES))
    return SCHEMES[name].from_dict(data)
