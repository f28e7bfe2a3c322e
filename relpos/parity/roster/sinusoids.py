"""Rows of the schemes that project fixed functions of the distance."""

from __future__ import annotations

from relpos.errors import SettingError
from relpos.parity.roster.row import Row, Wrong
from relpos.schemes import TransformerXL, Zipformer

__all__ = ["ROWS"]

ROWS = (
    Row(
        # Narrow: queries are projected, whatever the positions.
        "TransformerXL concat",
        TransformerXL("concat", width=8, base=100.0),
        wrong=(
            Wrong(
                "order",
                SettingError,
                "TransformerXL.order must have its declared type",
                settings=lambda: TransformerXL("sines", 8),  # type: ignore[arg-type]
            ),
            Wrong(
                "width",
                SettingError,
                "holds a sine and a cosine of every frequency",
                settings=lambda: TransformerXL("concat", 7),
            ),
            Wrong(
                "base",
                SettingError,
                "must give falling frequencies",
                settings=lambda: TransformerXL("concat", 8, base=1.0),
            ),
            Wrong(
                "clamp",
                SettingError,
                "TransformerXL.clamp counts positions",
                settings=lambda: TransformerXL("concat", 8, clamp=-1),
            ),
        ),
    ),
    # Wide: distances are projected, where they are seen.
    Row("TransformerXL interleaved", TransformerXL("interleaved", width=66), representative=True),
    Row("TransformerXL clamped", TransformerXL("concat", width=10, base=50.0, clamp=4)),
    Row(
        "TransformerXL symmetric",
        TransformerXL("interleaved", width=12, base=100.0, clamp=20, symmetric=True),
    ),
    Row(
        "Zipformer",
        Zipformer(width=10, query_width=3, clamp=20),
        wrong=(
            Wrong(
                "width",
                SettingError,
                "holds a cosine and a sine of every multiple",
                settings=lambda: Zipformer(7, 2),
            ),
            Wrong(
                "query-width",
                SettingError,
                "Zipformer.query_width counts channels",
                settings=lambda: Zipformer(8, 0),
            ),
            Wrong(
                "length-factor",
                SettingError,
                "Zipformer.length_factor divides distances",
                settings=lambda: Zipformer(8, 2, length_factor=0.0),
            ),
            Wrong(
                "clamp",
                SettingError,
                "Zipformer.clamp counts positions",
                settings=lambda: Zipformer(8, 2, clamp=-1),
            ),
        ),
    ),
    Row("Zipformer clamped", Zipformer(width=8, query_width=4, length_factor=1.7, clamp=3)),
)
