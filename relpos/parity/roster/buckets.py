"""Rows of the schemes with a learned bias per bucket of distances."""

from __future__ import annotations

from relpos.errors import SettingError
from relpos.parity.roster.row import Row, Wrong
from relpos.schemes import T5

__all__ = ["ROWS"]

ROWS = (
    Row(
        "T5",
        T5(),
        past=131,
        representative=True,
        wrong=(
            Wrong(
                "buckets",
                SettingError,
                "must leave an exact bucket on each side",
                settings=lambda: T5(num_buckets=7),
            ),
            Wrong(
                "distance",
                SettingError,
                "must lie beyond the exact buckets",
                settings=lambda: T5(max_distance=8),
            ),
        ),
    ),
    Row("T5 causal", T5(bidirectional=False), past=131),
    Row("T5 small", T5(num_buckets=10, max_distance=13)),
    Row("T5 small causal", T5(num_buckets=7, max_distance=11, bidirectional=False)),
)
