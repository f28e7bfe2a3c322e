"""Relative positions for attention: what PyTorch and JAX/Flax share.

Importing `relpos` imports neither torch nor jax. The layers stand in `relpos_torch` and
`relpos_jax`; this package holds the schemes' settings, the exact arithmetic of distances, the
float64 oracle, the weights, the parity harness and the command line.
"""

from relpos.errors import DistanceError, RelposError, SettingError, ShapeError, WeightsError
from relpos.schemes import (
    SCHEMES,
    T5,
    Axial,
    BEiT,
    CoPE,
    DeBERTa,
    Decomposed2D,
    DynamicNTK,
    ForgettingAttention,
    GatedT5,
    LinearScaling,
    Llama3Scaling,
    LongRoPE,
    LowRankBank,
    MusicTransformer,
    NoPosition,
    NTKScaling,
    Parameter,
    RoPE,
    Scheme,
    Sections,
    Shaw,
    ShawBoth,
    Swin2D,
    SwinV2,
    TransformerXL,
    Windowed,
    XPos,
    YaRN,
    Zipformer,
)
from relpos.settings import AttentionSettings

__version__ = "0.1.0"

__all__ = [
    "SCHEMES",
    "T5",
    "AttentionSettings",
    "Axial",
    "BEiT",
    "CoPE",
    "DeBERTa",
    "Decomposed2D",
    "DistanceError",
    "DynamicNTK",
    "ForgettingAttention",
    "GatedT5",
    "LinearScaling",
    "Llama3Scaling",
    "LongRoPE",
    "LowRankBank",
    "MusicTransformer",
    "NTKScaling",
    "NoPosition",
    "Parameter",
    "RelposError",
    "RoPE",
    "Scheme",
    "Sections",
    "SettingError",
    "ShapeError",
    "Shaw",
    "ShawBoth",
    "Swin2D",
    "SwinV2",
    "TransformerXL",
    "WeightsError",
    "Windowed",
    "XPos",
    "YaRN",
    "Zipformer",
]
