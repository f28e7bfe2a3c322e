"""Rows of the schemes with a vector per distance, and of the control without any."""

from __future__ import annotations

import dataclasses

import numpy as np

from relpos.errors import DistanceError, SettingError, ShapeError
from relpos.parity.roster.row import Row, Wrong, replaced
from relpos.schemes import MusicTransformer, NoPosition, Shaw, ShawBoth, Windowed

__all__ = ["ROWS"]

_REACH = "counts positions"
_TABLES = "needs a table for keys, values or both"

ROWS = (
    Row(
        "NoPosition",
        NoPosition(),
        representative=True,
        exempt={"order": "the control knows no order"},
    ),
    Row(
        "Shaw",
        Shaw(left=3, right=2),
        representative=True,
        wrong=(
            Wrong("reach", SettingError, _REACH, settings=lambda: Shaw(-1, 2)),
            Wrong("tables", SettingError, _TABLES, settings=lambda: Shaw(1, 2, False, False)),
            Wrong(
                "table-shape",
                ShapeError,
                "params hold exactly the scheme's parameters",
                change=lambda inputs: dataclasses.replace(
                    inputs, params={n: a[:, :-1] for n, a in inputs.params.items()}
                ),
            ),
        ),
    ),
    Row("Shaw keys", Shaw(left=2, right=5, values=False, per_head=True)),
    Row("Shaw values", Shaw(left=5, right=0, keys=False)),
    Row(
        "Shaw full",
        Shaw(left=6, right=6, per_head=True, clip=False),
        past=None,
        wrong=(
            Wrong("past", DistanceError, "has a row for the distances", case={"Lk": 13}),
            Wrong(
                "past-explicit",
                DistanceError,
                "has a row for the distances",
                change=replaced("query_positions", np.array([0, 1, 2, 3, 17], np.int32)),
            ),
        ),
    ),
    Row(
        "ShawBoth",
        ShawBoth(left=2, right=4),
        wrong=(Wrong("reach", SettingError, _REACH, settings=lambda: ShawBoth(1, -2)),),
    ),
    Row(
        "ShawBoth full",
        ShawBoth(left=6, right=6, per_head=True, clip=False),
        past=None,
        wrong=(Wrong("past", DistanceError, "has a row for the distances", case={"Lk": 13}),),
    ),
    Row(
        "MusicTransformer",
        MusicTransformer(reach=4),
        wrong=(Wrong("reach", SettingError, _REACH, settings=lambda: MusicTransformer(-1)),),
    ),
    Row("MusicTransformer zero", MusicTransformer(reach=3, per_head=False, beyond="zero")),
    Row(
        "Windowed",
        Windowed(left=3, right=2),
        wrong=(
            Wrong("reach", SettingError, _REACH, settings=lambda: Windowed(2, -1)),
            Wrong(
                "tables",
                SettingError,
                _TABLES,
                settings=lambda: Windowed(1, 2, keys=False, values=False),
            ),
        ),
    ),
    Row("Windowed keys", Windowed(left=1, right=4, values=False, per_head=True)),
    Row("Windowed values", Windowed(left=4, right=1, keys=False, per_head=True)),
)
