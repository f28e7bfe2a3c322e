"""Rows of the schemes of a grid: a window of cells, or patches and a class token."""

from __future__ import annotations

import numpy as np

from relpos.errors import DistanceError, SettingError
from relpos.parity.roster.row import Row, Wrong, replaced
from relpos.schemes import BEiT, Decomposed2D, Swin2D, SwinV2

__all__ = ["ROWS"]

_CELLS = "counts cells"
_OFF = (
    Wrong("long", DistanceError, "has the positions from", case={"Lk": 17}),
    Wrong("queries", DistanceError, "has the positions from", case={"Lq": 8, "Lk": 7}),
    Wrong(
        "off-grid",
        DistanceError,
        "has the positions from",
        change=replaced("query_positions", np.array([0, 1, 2, 3, 16], np.int32)),
    ),
)

ROWS = (
    Row(
        "Swin2D",
        Swin2D(height=2, width=4),
        past=8,
        wrong=(
            *_OFF,
            Wrong("height", SettingError, _CELLS, settings=lambda: Swin2D(0, 7)),
            Wrong("width", SettingError, _CELLS, settings=lambda: Swin2D(7, -1)),
        ),
    ),
    Row("Swin2D tall", Swin2D(height=7, width=1), past=None),
    Row(
        "SwinV2",
        SwinV2(height=2, width=4, hidden=5),
        past=None,
        wrong=(
            *_OFF,
            Wrong("height", SettingError, _CELLS, settings=lambda: SwinV2(0, 7)),
            Wrong(
                "hidden",
                SettingError,
                "is the width of the network",
                settings=lambda: SwinV2(2, 4, hidden=0),
            ),
            Wrong(
                "one-side",
                SettingError,
                "takes both sides",
                settings=lambda: SwinV2(2, 4, pretrained_width=3),
            ),
            Wrong(
                "no-measure",
                SettingError,
                "is what offsets are measured by",
                settings=lambda: SwinV2(2, 4, pretrained_height=2, pretrained_width=1),
            ),
        ),
    ),
    Row(
        "SwinV2 pretrained",
        SwinV2(height=1, width=8, hidden=3, pretrained_height=3, pretrained_width=4),
        past=None,
    ),
    Row(
        "SwinV2 larger",
        SwinV2(height=4, width=2, hidden=3, pretrained_height=3, pretrained_width=2),
        past=None,
    ),
    Row(
        "BEiT",
        BEiT(height=2, width=3),
        past=None,
        wrong=(
            *_OFF,
            Wrong("width", SettingError, _CELLS, settings=lambda: BEiT(7, 0)),
        ),
    ),
    Row("BEiT tall", BEiT(height=6, width=1), past=None),
    Row(
        "Decomposed2D",
        Decomposed2D(height=2, width=4),
        past=None,
        wrong=(
            *_OFF,
            Wrong("height", SettingError, _CELLS, settings=lambda: Decomposed2D(0, 7)),
            Wrong(
                "pooled",
                SettingError,
                "a coarser grid covers whole cells along its width",
                settings=lambda: Decomposed2D(4, 6).pooled_positions(2, 4),
            ),
        ),
    ),
    Row("Decomposed2D scaled", Decomposed2D(3, 3, scaled=True, per_head=True), past=None),
)
