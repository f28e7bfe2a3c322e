"""The figures of a report, line by line, as the screen and the document show them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relpos.demo.judge import ENGINE, SCORES, SIDES, pair_name
from relpos.parity.comparison import Comparison
from relpos.parity.report import Report

__all__ = ["Line", "lines_of"]


@dataclass(frozen=True)
class Line:
    """One comparison through all layers.

    Attributes:
        group: What is compared: output, gradients, position scores.
        name: Who against whom.
        ratios: By layer, the worst error as a multiple of its budget.
        errors: By layer, the largest absolute error.
    """

    group: str
    name: str
    ratios: tuple[float, ...]
    errors: tuple[float, ...]


_GROUPS: dict[str, Callable[[Comparison], bool]] = {
    "output": lambda comparison: comparison.what == "output",
    "gradients": lambda comparison: comparison.is_gradient,
    SCORES: lambda comparison: comparison.what == SCORES,
}


def lines_of(report: Report, layers: list[str]) -> list[Line]:
    """Every comparison that the layers' checks hold, in a fixed order."""
    against_truth = {side: f"{side} vs float64" for side in SIDES}
    pairs = [("torch", ENGINE), ("flax", ENGINE), ("flax", "torch")]
    sides = against_truth | {name: name for name in (pair_name(*pair) for pair in pairs)}
    lines = []
    for group, belongs in _GROUPS.items():
        for side, name in sides.items():
            worst = [
                [
                    (comparison.ratio, comparison.atol)
                    for check in report.checks
                    if (check.subject, check.side) == (f"layer {layer}", side)
                    for comparison in check.comparisons
                    if belongs(comparison)
                ]
                for layer in layers
            ]
            if all(worst):
                ratios, errors = (
                    tuple(max(pair[n] for pair in found) for found in worst) for n in (0, 1)
                )
                lines.append(Line(group, name, ratios, errors))
    return lines
