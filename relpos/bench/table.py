"""A result on a terminal: tables of times as multiples of plain attention."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from relpos.bench.result import PLAIN, Measurement, Result

__all__ = ["cell", "render"]

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
            parts += _times(result, found, _TITLES[framework, form], plain)
            other = PLAIN["torch", form]
            if framework != "torch" and any(m.name == other for m in result.measurements):
                parts += _times(result, found, _TITLES[framework, form], other)
    if any(m.peak is not None for m in result.measurements):
        parts += [Text("Memory beyond inputs and parameters", "bold"), _memory(result), Text()]
    for framework in dict.fromkeys(each.framework for each in result.rates()):
        rates = [
            each.operations / seconds / 1e9
            for each in result.rates()
            if each.framework == framework
            for seconds in each.seconds
        ]
        parts.append(
            Text(
                f"Matrix products by {framework}: {min(rates):.0f} to {max(rates):.0f} times 10^9 "
                "operations a second. Where they scatter, so do small ratios: take more rounds."
            )
        )
    for name, reason in result.missing.items():
        parts.append(Text(f"Missing: {name} ({reason}).", "yellow"))
    problems = {(m.name, m.problem): m for m in result.measurements if m.problem}
    for (name, problem), measured in problems.items():
        parts.append(Text(f"{name}, {_DIRECTIONS[measured.direction]}: {problem}.", "yellow"))
    return Group(*parts)


def cell(result: Result, measured: Measurement | None, plain: str) -> Text:
    """A ratio, half the distance of its quartiles, and the share of the rate; a dot for nothing."""
    ratio = None if measured is None else result.ratio(measured, plain)
    if ratio is None or measured is None:
        return Text("·", "dim")
    low, middle, high = ratio
    share = result.share(measured)
    spread = f" ±{(high - low) / 2:.2f}"
    return Text.assemble(
        f"{middle:.2f}", (spread, "dim"), ("" if share is None else f" {share:4.0%}", "dim")
    )


def _times(
    result: Result, found: list[Measurement], title: str, plain: str
) -> list[RenderableType]:
    lengths = sorted({m.L for m in found})
    grid = _grid(lengths)
    for direction, heading in _DIRECTIONS.items():
        grid.add_row(Text(heading, "italic"))
        for work, name, ours, by_length in _lines(found, direction):
            cells = [cell(result, by_length.get(L), plain) for L in lengths]
            grid.add_row(work, Text(name, "bold cyan" if ours else ""), *cells)
    about = f"Median time as a multiple of {plain}, spread, share of the rate of matrix products."
    return [Text(title, "bold"), Text(about, "dim"), grid, Text()]


def _memory(result: Result) -> Table:
    found = [m for m in result.measurements if m.peak is not None]
    lengths = sorted({m.L for m in found})
    grid = _grid(lengths)
    for direction, heading in reversed(_DIRECTIONS.items()):
        if any(m.direction == direction for m in found):
            grid.add_row(Text(heading, "italic"))
        for work, name, ours, by_length in _lines(found, direction):
            peaks = [None if L not in by_length else by_length[L].peak for L in lengths]
            cells = ["·" if peak is None else f"{peak / 2**20:,.0f} MiB" for peak in peaks]
            grid.add_row(work, Text(name, "bold cyan" if ours else ""), *cells)
    return grid


def _grid(lengths: list[int]) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    grid.add_column("")
    grid.add_column("")
    for L in lengths:
        grid.add_column(f"L={L}", justify="right", no_wrap=True)
    return grid


def _lines(
    found: list[Measurement], direction: str
) -> Iterator[tuple[str, str, bool, dict[int, Measurement]]]:
    """Work, name, whether it is ours and the measurements by length, work by work."""
    of_direction = [m for m in found if m.direction == direction]
    for work in dict.fromkeys(m.work for m in of_direction):
        names = dict.fromkeys(m.name for m in of_direction if m.work == work)
        for number, name in enumerate(names):
            by_length = {m.L: m for m in of_direction if m.name == name}
            ours = next(iter(by_length.values())).ours
            yield f" {work}" if number == 0 else "", name, ours, by_length
