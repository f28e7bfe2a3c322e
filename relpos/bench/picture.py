"""Cost against length on logarithmic axes: time as a multiple of plain attention, and memory."""

from __future__ import annotations

import io
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from relpos.bench.result import PLAIN, Result
from relpos.bench.works import WORKS

__all__ = ["picture"]

_FORMS = {
    ("torch", "function"): "PyTorch functions",
    ("torch", "layer"): "PyTorch layers",
    ("jax", "function"): "JAX functions",
}
_DIRECTIONS = {"forward": "forward", "both": "forward and backward"}
#: Colours that are told apart without red or green receptors (Okabe and Ito).
_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#7F3C8D",
    "#4D4D4D",
    "#8C6D31",
)


def picture(result: Result, *, form: Literal["png", "svg"] = "png") -> bytes:
    """The picture as a file's content: a row per form of call, a column per direction."""
    shown = [
        key for key in _FORMS if any((m.framework, m.form) == key for m in result.measurements)
    ]
    with mpl.rc_context({"font.size": 8.5, "axes.linewidth": 0.6}):
        figure = Figure(figsize=(10.5, 0.6 + 3.9 * len(shown)), dpi=150, layout="constrained")
        panels = figure.subplots(len(shown), 2, squeeze=False, sharex=True)
        for row, key in enumerate(shown):
            for column, direction in enumerate(_DIRECTIONS):
                _draw(panels[row, column], result, key, direction, legend=column == 1)
        for panel in panels[-1]:
            panel.set_xlabel("length L, tokens")
        size = result.environment["size"]
        figure.suptitle(
            "Time beside plain attention without positions, medians and quartiles. "
            f"{result.environment['processor']}, {result.environment['cores']} cores, "
            f"{size['dtype']}, B={size['B']}, H={size['H']}, d={size['d']}",
            fontsize=9.5,
        )
        file = io.BytesIO()
        if form == "svg":
            FigureCanvasSVG(figure).print_svg(file)  # type: ignore[no-untyped-call]
        else:
            FigureCanvasAgg(figure).print_png(file)  # type: ignore[no-untyped-call]
    return file.getvalue()


def _colour(work: str) -> str:
    """The same work has one colour in every panel."""
    return _COLOURS[[each.name for each in WORKS].index(work) % len(_COLOURS)]


def _draw(
    panel: Axes, result: Result, key: tuple[str, str], direction: str, *, legend: bool
) -> None:
    found = [
        m
        for m in result.measurements
        if (m.framework, m.form) == key and m.direction == direction and m.name != PLAIN[key]
    ]
    works = list(dict.fromkeys(m.work for m in found))
    panel.axhline(1.0, color="#888888", linewidth=0.8)
    for work in works:
        for number, name in enumerate(dict.fromkeys(m.name for m in found if m.work == work)):
            points = [
                (m.L, ratio)
                for m in found
                if m.name == name and (ratio := result.ratio(m, PLAIN[key])) is not None
            ]
            if not points:
                continue
            ours = next(m.ours for m in found if m.name == name)
            style: dict[str, Any] = (
                {"linewidth": 1.8} if ours else {"linestyle": (0, (2, 1.5)), "linewidth": 1.2}
            )
            panel.errorbar(
                [L for L, _ in points],
                [middle for _, (_, middle, _) in points],
                yerr=[
                    [middle - low for _, (low, middle, _) in points],
                    [high - middle for _, (_, middle, high) in points],
                ],
                marker="o" if ours else "sv^D"[number % 4],
                markersize=3.5,
                capsize=2,
                elinewidth=0.7,
                color=_colour(work),
                label=name,
                **style,
            )
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    lengths = sorted({m.L for m in result.measurements})
    panel.set_xticks(lengths, [str(L) for L in lengths])
    ticks = [0.3, 0.4, 0.5, 0.7, 1, 1.4, 2, 3, 4, 5, 7, 10, 14, 20, 30, 50, 100]
    low, high = panel.get_ylim()
    panel.set_yticks([tick for tick in ticks if low <= tick <= high])
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.grid(True, linewidth=0.3)
    panel.set_title(f"{_FORMS[key]}, {_DIRECTIONS[direction]}", fontsize=9)
    panel.set_ylabel(f"time / {PLAIN[key]}")
    if legend:
        panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=7.5)
