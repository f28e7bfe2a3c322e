"""A result on a terminal: tables of times as multiples of plain attention."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from relpos.bench.result import PLAIN, Measurement, Result

__all__ = ["ratio_text", "render"]

_DIRECTIONS = {"forward": "forward", "both": "forward and backward"}
_TITLES = {
    ("torch", "function"): "PyTorch, q, k, v to output",
    ("torch", "layer"): "PyTorch, layers with their projections",
    ("jax", "function"): "JAX, q, k, v to output",
}


def render(result: Result) -> RenderableType:
    """Every table of the run, then what is missing and what failed."""
    parts: list[RenderableType] = []
    for (framework, form), plain in PLAIN.items():
        found = [m for m in result.measurements if (m.framework, m.form) == (framework, form)]
        if found:
            parts += [
                Text(_TITLES[framework, form], "bold"),
                Text(f"Median time as a multiple of {plain}, and its quartiles.", "dim"),
                _table(result, found, plain),
                Text(),
            ]
    if result.rates:
        rates = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in result.rates.items())
        parts.append(Text(f"Matrix products, in 10^9 operations a second: {rates}."))
    for name, reason in result.missing.items():
        parts.append(Text(f"Missing: {name} ({reason}).", "yellow"))
    problems = {(m.name, m.problem): m for m in result.measurements if m.problem}
    for (name, problem), measured in problems.items():
        parts.append(Text(f"{name}, {_DIRECTIONS[measured.direction]}: {problem}.", "yellow"))
    return Group(*parts)


def _table(result: Result, found: list[Measurement], plain: str) -> Table:
    lengths = sorted({m.L for m in found})
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    grid.add_column("")
    grid.add_column("")
    for L in lengths:
        grid.add_column(f"L={L}", justify="right", no_wrap=True)
    if any(m.peak is not None for m in found):
        longest = max(m.L for m in found if m.peak is not None)
        grid.add_column(f"memory\nL={longest}", justify="right", no_wrap=True)
    else:
        longest = None
    for direction, heading in _DIRECTIONS.items():
        grid.add_row(Text(heading, "italic"))
        of_direction = [m for m in found if m.direction == direction]
        # By what they compute, so that ours stands beside what it replaces.
        works = dict.fromkeys(m.work for m in of_direction)
        for work in works:
            names = dict.fromkeys(m.name for m in of_direction if m.work == work)
            for number, name in enumerate(names):
                by_length = {m.L: m for m in of_direction if m.name == name}
                ours = next(iter(by_length.values())).ours
                cells = [ratio_text(result, by_length.get(L), plain) for L in lengths]
                if longest is not None:
                    cells.append(_memory(by_length.get(longest)))
                shown = f" {work}" if number == 0 else ""
                grid.add_row(shown, Text(name, "bold cyan" if ours else ""), *cells)
    return grid


def ratio_text(result: Result, measured: Measurement | None, plain: str) -> Text:
    """A ratio with its quartiles; a dot where nothing was measured."""
    ratio = None if measured is None else result.ratio(measured, plain)
    if ratio is None:
        return Text("·", "dim")
    low, middle, high = ratio
    return Text.assemble(f"{middle:.2f}", (f" {low:.2f}-{high:.2f}", "dim"))


def _memory(measured: Measurement | None) -> Text:
    if measured is None or measured.peak is None:
        return Text("·", "dim")
    return Text(f"{measured.peak / 2**20:,.0f} MiB")
