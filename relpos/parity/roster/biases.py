"""Rows of the schemes with a bias that a formula or a small network gives every distance."""

from __future__ import annotations

from relpos.errors import SettingError
from relpos.parity.roster.row import Row, Wrong
from relpos.schemes import ALiBi, ContinuousBias, Fire, Kerple, Sandwich

__all__ = ["ROWS"]

ROWS = (
    Row(
        "ALiBi",
        ALiBi(),
        representative=True,
        wrong=(
            Wrong(
                "max-bias",
                SettingError,
                "ALiBi.max_bias makes the slopes fall",
                settings=lambda: ALiBi(max_bias=0.0),
            ),
            Wrong(
                "count",
                SettingError,
                "ALiBi.unbiased_heads counts heads",
                settings=lambda: ALiBi(unbiased_heads=-1),
            ),
            Wrong(
                "too-many",
                SettingError,
                "ALiBi.unbiased_heads are some of the heads",
                settings=lambda: ALiBi(unbiased_heads=4).slopes(3),
            ),
            Wrong(
                "learned-none",
                SettingError,
                "ALiBi learns the slope of every head or of none",
                settings=lambda: ALiBi(learned=True, unbiased_heads=1),
            ),
        ),
    ),
    Row("ALiBi of fewer heads", ALiBi(symmetric=False, unbiased_heads=1, max_bias=4.0)),
    Row("ALiBi learned scaled", ALiBi(learned=True, scaled=True)),
    Row(
        "Kerple log",
        Kerple(),
        wrong=(
            Wrong(
                "kind",
                SettingError,
                "Kerple.kind must have its declared type",
                settings=lambda: Kerple("exp"),  # type: ignore[arg-type]
            ),
        ),
    ),
    Row("Kerple power", Kerple("power")),
    Row(
        "Sandwich",
        Sandwich(width=10, base=100.0, max_ratio=5.0),
        wrong=(
            Wrong(
                "odd",
                SettingError,
                "Sandwich.width holds a cosine and a sine",
                settings=lambda: Sandwich(width=7),
            ),
            Wrong(
                "base",
                SettingError,
                "Sandwich.base must give falling frequencies",
                settings=lambda: Sandwich(base=1.0),
            ),
            Wrong(
                "ratio",
                SettingError,
                "Sandwich.max_ratio divides",
                settings=lambda: Sandwich(max_ratio=float("inf")),
            ),
            Wrong(
                "first",
                SettingError,
                "Sandwich.first counts frequencies",
                settings=lambda: Sandwich(first=-1),
            ),
        ),
    ),
    Row("Sandwich from the second", Sandwich(width=6, base=100.0, first=1)),
    Row(
        "ContinuousBias",
        ContinuousBias(hidden=5),
        wrong=(
            Wrong(
                "hidden",
                SettingError,
                "ContinuousBias.hidden is the width of the network",
                settings=lambda: ContinuousBias(hidden=0),
            ),
            Wrong(
                "depth",
                SettingError,
                "ContinuousBias.depth counts the network's hidden layers",
                settings=lambda: ContinuousBias(depth=0),
            ),
        ),
    ),
    Row("ContinuousBias linear", ContinuousBias(5, 1, "relu", distance="linear")),
    Row(
        "Fire",
        Fire(hidden=5, threshold=4.0),
        representative=True,
        wrong=(
            Wrong(
                "hidden",
                SettingError,
                "Fire.hidden is the width of the network",
                settings=lambda: Fire(hidden=0),
            ),
            Wrong(
                "threshold",
                SettingError,
                "Fire.threshold is a position",
                settings=lambda: Fire(threshold=0.0),
            ),
        ),
    ),
)
