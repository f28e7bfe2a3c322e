"""Rows of the schemes whose positions depend on what the tokens between say."""

from __future__ import annotations

from relpos.parity.roster.row import Row
from relpos.schemes import ForgettingAttention

__all__ = ["ROWS"]

ROWS = (
    Row(
        "ForgettingAttention",
        ForgettingAttention(),
        representative=True,
        exempt={
            "packing": "tokens at one position forget together, so sequences need their own",
        },
    ),
)
