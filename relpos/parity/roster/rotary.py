"""Rows of the schemes that rotate queries and keys."""

from __future__ import annotations

from relpos.errors import SettingError
from relpos.parity.roster.row import Row, Wrong
from relpos.schemes import RoPE

__all__ = ["ROWS"]

ROWS = (
    Row(
        "RoPE half",
        RoPE("half"),
        d=10,
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
        ),
    ),
    Row("RoPE interleaved", RoPE("interleaved"), d=10),
    Row("RoPE half partial", RoPE("half", rotary_dim=6, base=100.0)),
    Row("RoPE interleaved partial", RoPE("interleaved", rotary_dim=4, base=500_000.0)),
)
