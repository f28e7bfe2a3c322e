"""Rows of the schemes for which the tokens between a key and its query decide how far it is."""

from __future__ import annotations

import dataclasses

from relpos.errors import SettingError, ShapeError
from relpos.parity.roster.row import Row, Wrong
from relpos.schemes import CoPE, ForgettingAttention

__all__ = ["ROWS"]

_IN_FULL = {"blockwise": "a place depends on all scores of its query"}

ROWS = (
    Row(
        "ForgettingAttention",
        ForgettingAttention(),
        representative=True,
        exempt={"packing": "what stands between by position counts, in whatever sequence"},
        wrong=(
            Wrong(
                "no-gates",
                ShapeError,
                "key_features are what ForgettingAttention reads of each token and head",
                change=lambda inputs: dataclasses.replace(inputs, features={}),
            ),
        ),
    ),
    Row(
        "CoPE",
        CoPE(num_positions=4),
        representative=True,
        exempt=_IN_FULL,
        wrong=(
            Wrong(
                "one-place",
                SettingError,
                "CoPE.num_positions counts places to interpolate between",
                settings=lambda: CoPE(1),
            ),
        ),
    ),
    Row("CoPE scaled", CoPE(num_positions=3, per_head=True, scaled=True), exempt=_IN_FULL),
)
