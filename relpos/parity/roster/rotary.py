"""Rows of the schemes that rotate queries and keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from relpos.errors import DistanceError, SettingError, ShapeError
from relpos.parity.roster.row import Row, Wrong, replaced
from relpos.schemes import (
    Axial,
    DynamicNTK,
    LinearScaling,
    Llama3Scaling,
    LongRoPE,
    NTKScaling,
    RoPE,
    Sections,
    XPos,
    YaRN,
)

__all__ = ["ROWS"]


def _misfit(name: str, message: str, *, d: int, **settings: Any) -> Wrong:
    """A head width that RoPE with these settings cannot use."""
    return Wrong(
        name,
        SettingError,
        message,
        settings=lambda: RoPE("half", **settings).check_head_dim(d),
    )


ROWS = (
    Row(
        "RoPE half",
        RoPE("half"),
        d=10,
        representative=True,
        wrong=(
            Wrong(
                "layout",
                SettingError,
                "RoPE.layout must have its declared type",
                settings=lambda: RoPE("pairs"),  # type: ignore[arg-type]
            ),
            Wrong(
                "odd",
                SettingError,
                "must hold whole pairs",
                settings=lambda: RoPE("half", rotary_dim=5),
            ),
            Wrong(
                "base",
                SettingError,
                "must give falling frequencies",
                settings=lambda: RoPE("half", base=1.0),
            ),
            Wrong(
                "partial",
                SettingError,
                "RoPE.partial says how a part of the head is rotated",
                settings=lambda: RoPE("half", partial="proportional"),
            ),
            Wrong(
                "scaling",
                SettingError,
                "RoPE.scaling must have its declared type",
                settings=lambda: RoPE("half", scaling=4.0),  # type: ignore[arg-type]
            ),
        ),
    ),
    Row("RoPE interleaved", RoPE("interleaved"), d=10),
    Row("RoPE half partial", RoPE("half", rotary_dim=6, base=100.0)),
    Row("RoPE interleaved partial", RoPE("interleaved", rotary_dim=4, base=500_000.0)),
    Row(
        "RoPE proportional linear",
        RoPE("half", 4, 100.0, partial="proportional", scaling=LinearScaling(4.0)),
        d=10,
        wrong=(
            _misfit("odd-head", "pairs the whole head", rotary_dim=4, partial="proportional", d=11),
            Wrong(
                "factor",
                SettingError,
                "LinearScaling.factor stretches the length",
                settings=lambda: LinearScaling(0.5),
            ),
            Wrong(
                "type",
                SettingError,
                "LinearScaling.factor must have its declared type",
                settings=lambda: LinearScaling("4"),  # type: ignore[arg-type]
            ),
        ),
    ),
    Row(
        "RoPE NTK",
        RoPE("interleaved", rotary_dim=8, base=100.0, scaling=NTKScaling(4.0)),
        wrong=(
            Wrong(
                "factor",
                SettingError,
                "NTKScaling.factor stretches the length",
                settings=lambda: NTKScaling(float("inf")),
            ),
            _misfit(
                "one-pair", "keeps the first frequency", rotary_dim=2, scaling=NTKScaling(4.0), d=11
            ),
        ),
    ),
    Row(
        "RoPE dynamic NTK",
        RoPE("half", base=100.0, scaling=DynamicNTK(2.0, original_length=5, length=13)),
        d=10,
        wrong=(
            Wrong(
                "original",
                SettingError,
                "DynamicNTK.original_length counts positions",
                settings=lambda: DynamicNTK(2.0, 0),
            ),
            Wrong(
                "length",
                SettingError,
                "fixes the frequencies of a longer call",
                settings=lambda: DynamicNTK(2.0, 5, length=5),
            ),
            _misfit("one-pair", "keeps the first frequency", scaling=DynamicNTK(2.0, 5), d=2),
        ),
    ),
    Row(
        "RoPE YaRN",
        RoPE(
            "half",
            base=100.0,
            scaling=YaRN(4.0, 64, beta_fast=4.0, mscale=0.7, mscale_all_dim=0.3),
        ),
        d=10,
        wrong=(
            Wrong(
                "turns",
                SettingError,
                "beta_fast and beta_slow count turns",
                settings=lambda: YaRN(4.0, 64, beta_fast=1.0),
            ),
            Wrong(
                "half-a-ratio",
                SettingError,
                "two halves of one ratio",
                settings=lambda: YaRN(4.0, 64, mscale=1.0),
            ),
            Wrong(
                "two-factors",
                SettingError,
                "YaRN has one attention factor",
                settings=lambda: YaRN(
                    4.0, 64, attention_factor=1.0, mscale=1.0, mscale_all_dim=1.0
                ),
            ),
            _misfit("no-ramp", "YaRN's ramp lies among the pairs", scaling=YaRN(4.0, 6), d=10),
        ),
    ),
    Row(
        "RoPE YaRN untruncated",
        RoPE(
            "interleaved",
            rotary_dim=8,
            base=50.0,
            scaling=YaRN(3.0, 64, 5.0, 1.5, truncate=False, attention_factor=1.2),
        ),
        wrong=(
            Wrong(
                "attention-factor",
                SettingError,
                "YaRN.attention_factor multiplies cosines and sines",
                settings=lambda: YaRN(4.0, 64, attention_factor=0.0),
            ),
        ),
    ),
    Row(
        # Long in the second row of packed positions and past the original length, else short.
        "RoPE LongRoPE",
        RoPE(
            "half",
            rotary_dim=6,
            base=100.0,
            scaling=LongRoPE((1.0, 1.1, 1.5), (1.0, 3.0, 7.0), original_length=12, factor=4.0),
        ),
        changes={
            "scaling.attention_factor": RoPE(
                "half",
                rotary_dim=6,
                base=100.0,
                scaling=LongRoPE((1.0, 1.1, 1.5), (1.0, 3.0, 7.0), 12, attention_factor=1.3),
            )
        },
        exempt={"translation": "tokens far out turn by other frequencies"},
        wrong=(
            Wrong(
                "list",
                SettingError,
                "LongRoPE.short_factors must have its declared type",
                settings=lambda: LongRoPE([1.0], (1.0,), 12, 4.0),  # type: ignore[arg-type]
            ),
            Wrong(
                "zero",
                SettingError,
                "LongRoPE.long_factors divide frequencies",
                settings=lambda: LongRoPE((1.0,), (0.0,), 12, 4.0),
            ),
            Wrong(
                "two-factors",
                SettingError,
                "LongRoPE has one attention factor",
                settings=lambda: LongRoPE((1.0,), (1.0,), 12),
            ),
            _misfit(
                "count",
                "one short and one long factor per rotated pair",
                scaling=LongRoPE((1.0,), (1.0,), 12, 4.0),
                d=10,
            ),
        ),
    ),
    Row(
        "RoPE Llama 3",
        RoPE("half", base=100.0, scaling=Llama3Scaling(8.0, 1.0, 4.0, original_length=32)),
        d=10,
        wrong=(
            Wrong(
                "order",
                SettingError,
                "two frequency factors count turns",
                settings=lambda: Llama3Scaling(8.0, 4.0, 1.0),
            ),
        ),
    ),
    Row(
        "RoPE sections",
        RoPE("half", base=100.0, axes=Sections((2, 1, 2))),
        d=10,
        wrong=(
            Wrong(
                "one-axis",
                SettingError,
                "Sections.sizes count the pairs of each axis",
                settings=lambda: Sections((5,)),
            ),
            Wrong(
                "order",
                SettingError,
                "give the first axis the most pairs",
                settings=lambda: Sections((2, 3), order="interleaved"),
            ),
            _misfit("sizes", "name an axis for every rotated pair", axes=Sections((2, 2)), d=10),
            Wrong(
                "axes",
                ShapeError,
                r"or [B or 1, L, A] = [2 or 1, 5, 3]",
                change=replaced("query_positions", np.zeros((1, 5, 2), np.int32)),
            ),
        ),
    ),
    Row(
        "RoPE sections interleaved",
        RoPE("interleaved", 8, 100.0, axes=Sections((2, 1, 1), order="interleaved")),
    ),
    Row(
        "RoPE axial",
        RoPE("half", base=100.0, scaling=LinearScaling(2.0), axes=Axial((3, 2))),
        d=10,
        wrong=(
            Wrong(
                "proportional",
                SettingError,
                "axial frequencies rotates all of their pairs",
                settings=lambda: RoPE("half", 4, partial="proportional", axes=Axial((3, 2))),
            ),
        ),
    ),
    Row(
        "XPos half",
        XPos("half", base=100.0, scale_base=16.0),
        d=10,
        wrong=(
            Wrong(
                "scale-base",
                SettingError,
                "XPos.scale_base sets the decay",
                settings=lambda: XPos("half", scale_base=0.0),
            ),
            Wrong(
                "gamma",
                SettingError,
                "XPos.gamma sets the decay",
                settings=lambda: XPos("half", gamma=float("inf")),
            ),
            Wrong(
                "odd",
                SettingError,
                "XPos.rotary_dim must hold whole pairs",
                settings=lambda: XPos("half", rotary_dim=3),
            ),
            Wrong(
                "spread",
                DistanceError,
                "serves positions of one row up to 1133 apart",
                change=replaced("query_positions", np.array([0, 1, 2, 3, 1134], np.int32)),
            ),
        ),
    ),
    Row("XPos interleaved partial", XPos("interleaved", 6, 100.0, scale_base=8.0, gamma=0.7)),
)
