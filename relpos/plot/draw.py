"""A pattern as a picture: a heat map per head, curves over distance, tables of values.

Zero is white, more is red and less is blue, on one scale for all heads, so that heads can be
compared. The colours are told apart without red or green receptors.
"""

from __future__ import annotations

import dataclasses
import io
import textwrap
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from relpos.plot.pattern import Pattern

__all__ = ["FORMATS", "picture"]

FORMATS = ("png", "svg")

_CURVE, _GREY, _NO_VALUE = "#0b5394", "#555555", "#e0e0dc"
_DISTANCE = "distance j - i, key position minus query position, in tokens"
_ADDED = "added to the score"
#: More heads than this share one plot of curves.
_FEW = 8
#: Inches of the title, and of a row of curves.
_HEAD, _CURVES = 0.62, 1.45


def picture(pattern: Pattern, source: str, *, form: Literal["png", "svg"] = "png") -> bytes:
    """The picture as a file's content.

    Args:
        pattern: What to draw.
        source: What the parameters are, as a sentence for the small print.
        form: `png` or `svg`.
    """
    H = len(pattern.scores)
    columns = _columns(H)
    rows = -(-H // columns)
    width = {1: 5.2, 2: 6.4}.get(columns, 8.0)
    panel = min(2.9, (width - 1.3) / columns - 0.15)
    curve_rows = rows if H <= _FEW else 1
    heights = [rows * (panel + 0.25) + 0.45, curve_rows * (_CURVES if H > 1 else 2.2) + 0.5]
    if H > _FEW:
        heights[1] += 1.0
    values = _trimmed(pattern)
    if values is not None:
        value_rows = -(-len(values[1]) // _columns(len(values[1])))
        heights.append(value_rows * 1.6 + 0.75)
    title = "\n".join(textwrap.wrap(f"What {_brief(pattern.scheme)} adds", int(10.5 * width)))
    small_print = "\n".join(textwrap.wrap(_caption(pattern, source), int(14.5 * width)))
    lines = (title.count("\n"), small_print.count("\n"))
    head = _HEAD + 0.2 * lines[0] + 0.15 * lines[1]
    with mpl.rc_context({"font.size": 8.5, "axes.linewidth": 0.6}):
        figure = Figure(figsize=(width, head + sum(heights)), dpi=160, layout="constrained")
        top, *parts = figure.subfigures(
            len(heights) + 1, 1, squeeze=False, height_ratios=[head, *heights]
        )[:, 0]
        top.text(0.1 / width, 1 - 0.08 / head, title, fontsize=12, va="top")
        top.text(0.1 / width, 0.08 / head, small_print, fontsize=8, color=_GREY, va="bottom")
        _draw_scores(parts[0], pattern, columns)
        (_draw_curves if H <= _FEW else _draw_many_curves)(parts[1], pattern, columns)
        if values is not None:
            _draw_values(parts[2], *values)
        file = io.BytesIO()
        if form == "svg":
            FigureCanvasSVG(figure).print_svg(file)  # type: ignore[no-untyped-call]
        else:
            FigureCanvasAgg(figure).print_png(file)  # type: ignore[no-untyped-call]
    return file.getvalue()


def _brief(settings: Any) -> str:
    """A scheme, or settings inside it, with what is not its default."""
    if not dataclasses.is_dataclass(settings):
        return repr(settings)
    given = [
        f"{field.name}={_brief(value)}"
        for field in dataclasses.fields(settings)
        if (value := getattr(settings, field.name)) != field.default
    ]
    return type(settings).__name__ + (f"({', '.join(given)})" if given else "")


def _caption(pattern: Pattern, source: str) -> str:
    sentences = [source]
    if pattern.reads_content:
        sentences.append("One random token per head, the same at every position.")
    if pattern.scheme.causal_only:
        sentences.append("Grey: later keys, which it does not read.")
    elif np.isnan(pattern.scores).any():
        sentences.append("Grey: no value.")
    return " ".join(sentences)


def _trimmed(pattern: Pattern) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    """The values, and of the constant stretches at both ends as much as shows that they are."""
    distances, values = pattern.value_distances, pattern.values
    if values is None:
        return None
    first, last = (
        np.flatnonzero((values != values[:, [end]]).any((0, 2))) for end in (0, len(distances) - 1)
    )
    if not len(first):
        return distances, values
    margin = 3 + (last[-1] - first[0]) // 5
    kept = slice(max(0, first[0] - margin), last[-1] + margin + 1)
    return distances[kept], values[:, kept]


def _columns(panels: int) -> int:
    """How many panels stand beside one another."""
    return min(panels, 4 if panels <= 12 else 8)


def _colours(values: NDArray[np.float64]) -> tuple[Colormap, Normalize]:
    """Zero white, less blue, more red; one side alone where there are no others."""
    least, most = float(np.nanmin(values)), float(np.nanmax(values))
    red_blue = mpl.colormaps["RdBu_r"]
    if least >= 0.0 or most <= 0.0:
        half = np.linspace(0.5, 1.0, 256) if least >= 0.0 else np.linspace(0.0, 0.5, 256)
        side = LinearSegmentedColormap.from_list("side", red_blue(half))
        span = (0.0, most or 1.0) if least >= 0.0 else (least, 0.0)
        return side.with_extremes(bad=_NO_VALUE), Normalize(*span)
    reach = max(-least, most)
    return red_blue.with_extremes(bad=_NO_VALUE), TwoSlopeNorm(0.0, -reach, reach)


def _draw_scores(part: SubFigure, pattern: Pattern, columns: int) -> None:
    H = len(pattern.scores)
    rows = -(-H // columns)
    axes = part.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    colours, norm = _colours(pattern.scores)
    queries, keys = pattern.query_positions, pattern.key_positions
    extent = (keys[0] - 0.5, keys[-1] + 0.5, queries[-1] + 0.5, queries[0] - 0.5)
    for h, ax in enumerate(axes.flat):
        if h >= H:
            ax.set_axis_off()
            continue
        ax.imshow(
            pattern.scores[h], cmap=colours, norm=norm, extent=extent, interpolation="nearest"
        )
        ax.set_title(f"head {h}", fontsize=8.5, pad=3)
        ax.tick_params(length=2, labelsize=7.5)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(_whole(4 if columns <= 4 else 2))
        # Where the row below ends early, this panel is the lowest of its column.
        ax.tick_params(labelbottom=h + columns >= H)
    part.supxlabel("key position j", fontsize=8.5)
    part.supylabel("query position i", fontsize=8.5)
    bar = part.colorbar(
        ScalarMappable(norm, colours), ax=axes, aspect=18 * rows, pad=0.02, label=_ADDED
    )
    _thin(bar)


def _draw_curves(part: SubFigure, pattern: Pattern, columns: int) -> None:
    """A panel per head, the other heads in the background."""
    H, distances = len(pattern.by_distance), pattern.distances
    rows = -(-H // columns)
    axes = part.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    dots: dict[str, Any] = {"marker": "o", "markersize": 2.0} if len(distances) <= 40 else {}
    for h, ax in enumerate(axes.flat):
        if h >= H:
            ax.set_axis_off()
            continue
        _cross(ax)
        ax.plot(distances, np.delete(pattern.by_distance, h, 0).T, color="#dcdcdc", linewidth=0.7)
        ax.plot(distances, pattern.by_distance[h], color=_CURVE, linewidth=1.2, **dots)
        _tidy(ax, 5 if columns > 2 else 9)
        ax.set_title(f"head {h}", fontsize=8.5, pad=3)
        ax.tick_params(labelbottom=h + columns >= H)
    _label(part, pattern)


def _draw_many_curves(part: SubFigure, pattern: Pattern, columns: int) -> None:
    """One plot, a shade per head."""
    ax = part.subplots()
    H = len(pattern.by_distance)
    _cross(ax)
    shades = mpl.colormaps["viridis"]
    for h, curve in enumerate(pattern.by_distance):
        ax.plot(pattern.distances, curve, color=shades(0.92 * h / (H - 1)), linewidth=1.0)
    _tidy(ax, 9)
    shown = LinearSegmentedColormap.from_list("heads", shades(np.linspace(0.0, 0.92, 256)))
    bar = part.colorbar(ScalarMappable(Normalize(0, H - 1), shown), ax=ax, pad=0.02, label="head")
    bar.ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    _thin(bar)
    _label(part, pattern)


def _draw_values(
    part: SubFigure, distances: NDArray[np.int64], values: NDArray[np.float64]
) -> None:
    columns = _columns(len(values))
    rows = -(-len(values) // columns)
    axes = part.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    colours, norm = _colours(values)
    extent = (distances[0] - 0.5, distances[-1] + 0.5, values.shape[2] - 0.5, -0.5)
    for n, ax in enumerate(axes.flat):
        if n >= len(values):
            ax.set_axis_off()
            continue
        ax.imshow(
            values[n].T,
            cmap=colours,
            norm=norm,
            extent=extent,
            aspect="auto",
            interpolation="nearest",
        )
        ax.set_title("every head" if len(values) == 1 else f"head {n}", fontsize=8.5, pad=3)
        ax.tick_params(length=2, labelsize=7.5, labelbottom=n + columns >= len(values))
        ax.xaxis.set_major_locator(_whole(5 if columns > 2 else 9))
        ax.yaxis.set_major_locator(_whole(4))
    part.supxlabel(_DISTANCE, fontsize=8.5)
    part.supylabel("channel", fontsize=8.5)
    bar = part.colorbar(
        ScalarMappable(norm, colours), ax=axes, pad=0.02, label="added to the value"
    )
    _thin(bar)


def _whole(most: int) -> MaxNLocator:
    return MaxNLocator(most, integer=True, steps=[1, 2, 4, 5, 10])


def _cross(ax: Axes) -> None:
    """Where nothing is added, and where the query itself stands."""
    ax.axhline(0.0, color="#bbbbbb", linewidth=0.7, zorder=1)
    ax.axvline(0.0, color="#bbbbbb", linewidth=0.7, zorder=1)


def _label(part: SubFigure, pattern: Pattern) -> None:
    query = "" if pattern.query is None else f", for i = {pattern.query}"
    part.supxlabel(_DISTANCE + query, fontsize=8.5)
    part.supylabel(_ADDED, fontsize=8.5)


def _tidy(ax: Axes, ticks: int) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(length=2, labelsize=7.5)
    ax.margins(x=0.01)
    ax.xaxis.set_major_locator(_whole(ticks))
    ax.yaxis.set_major_locator(MaxNLocator(4))


def _thin(bar: Colorbar) -> None:
    bar.outline.set_linewidth(0.4)
    bar.ax.tick_params(length=2, labelsize=7.5, width=0.5)
