"""The learned pattern: how much every distance adds to the scores, per layer and head.

    pattern[layer, h, d] = mean over queries i of <q[h, i], K[h, d]> * scale

over the sentence's real queries, for the pairs (i, i + d) that exist.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

__all__ = ["Pattern", "draw", "pattern_of"]

#: Distances shown on each side beyond the window, where the pattern is zero.
_BEYOND = 2
_COLOURS = ("#1f6f8b", "#c8553d", "#5b8c5a", "#8a5a9e", "#b8860b", "#555555")


@dataclass(frozen=True, eq=False)
class Pattern:
    """Position scores by distance.

    Attributes:
        distances: The distances j - i [N].
        mean: Over the queries [layers, H, N].
        low: The tenth percentile over the queries.
        high: The ninetieth.
    """

    distances: NDArray[np.int64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def pattern_of(scores: list[NDArray[np.float32]], left: int, right: int) -> Pattern:
    """The pattern of the layers' position scores [H, L, L] in and a little around the window."""
    L = scores[0].shape[-1]
    reach = np.arange(-min(left + _BEYOND, L - 1), min(right + _BEYOND, L - 1) + 1)
    mean, low, high = (
        np.array(
            [
                [[measure(np.diagonal(head, d)) for d in reach] for head in layer]
                for layer in np.array(scores, np.float64)
            ]
        )
        for measure in (
            np.mean,
            lambda row: np.quantile(row, 0.1),
            lambda row: np.quantile(row, 0.9),
        )
    )
    return Pattern(reach, mean, low, high)


def draw(pattern: Pattern, layers: list[str], window: tuple[int, int], caption: str) -> bytes:
    """The picture as a PNG: a row per head, a column per layer.

    Args:
        pattern: What to draw.
        layers: Names of the layers.
        window: (left, right), the reach of the tables.
        caption: What was measured, for the line below the title.
    """
    columns, heads = pattern.mean.shape[:2]
    figure = Figure(figsize=(1.0 + 1.6 * columns, 1.6 + 1.75 * heads), dpi=150)
    FigureCanvasAgg(figure)
    axes = figure.subplots(heads, columns, sharex=True, sharey=True, squeeze=False)
    left, right = window
    inside = (pattern.distances >= -left) & (pattern.distances <= right)
    for h in range(heads):
        for n in range(columns):
            ax, colour = axes[h, n], _COLOURS[h % len(_COLOURS)]
            at, mean = pattern.distances[inside], pattern.mean[n, h]
            ax.axvspan(-left - 0.5, right + 0.5, color="#f3f1ec", linewidth=0, zorder=0)
            ax.axhline(0.0, color="#999999", linewidth=0.7, zorder=1)
            low, high = pattern.low[n, h][inside], pattern.high[n, h][inside]
            ax.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
            ax.plot(at, mean[inside], color=colour, marker="o", markersize=3, linewidth=1.4)
            # No line to here: the pattern jumps to nothing at the window's end.
            ax.plot(pattern.distances[~inside], mean[~inside], "o", color="#777777", markersize=2.5)
            ax.spines[["top", "right"]].set_visible(False)
            ax.tick_params(labelsize=8, length=2)
            ax.set_xticks(sorted({-left, 0, right}))
            ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
            if h == 0:
                ax.set_title(f"layer {layers[n]}", fontsize=9, pad=4)
        axes[h, 0].set_ylabel(f"head {h}\nadded to the score", fontsize=9)
    height = figure.get_figheight()
    # The plots first: what is written above and below them has places of its own, in inches.
    figure.tight_layout(rect=(0.0, 0.3 / height, 1.0, 1 - 0.78 / height))
    figure.suptitle(
        "What each distance adds to the attention score", fontsize=12, y=1 - 0.1 / height, va="top"
    )
    figure.text(0.5, 1 - 0.36 / height, caption, ha="center", va="top", fontsize=8, color="#555555")
    figure.text(
        0.5,
        0.1 / height,
        "distance j - i, key position minus query position, in tokens",
        ha="center",
        fontsize=9,
    )
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()
