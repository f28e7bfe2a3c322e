"""What a person sees: steps with their times, two tables, and what was proved.

On a terminal a spinner shows the step under way; elsewhere, as in the log of a continuous
integration, there is one plain line per step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from relpos.demo.figures import Line
from relpos.demo.wrong_rule import Finding
from relpos.parity.report import Report
from relpos.parity.verdict import Verdict

__all__ = ["PLAIN_WIDTH", "Screen", "plain_console"]

#: Columns where no terminal says how many there are.
PLAIN_WIDTH = 100
_COLOURS = {Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.INCONCLUSIVE: "yellow"}


def plain_console() -> Console:
    """A console of the terminal's width, or of a fixed one elsewhere."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


class Screen:
    """Prints the demo's course.

    Args:
        console: Where to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        #: Seconds by step, in order.
        self.seconds: dict[str, float] = {}

    def line(self, text: str = "", style: str = "") -> None:
        """A line of text, with no markup in it."""
        self._console.print(Text(text, style=style))

    @contextmanager
    def step(self, name: str) -> Iterator[Callable[[str], None]]:
        """One step: yields the function that takes what came of it."""
        found: list[str] = []
        started = time.perf_counter()
        with self._console.status(Text(name)):
            yield found.append
        self.seconds[name] = seconds = time.perf_counter() - started
        row = Table.grid(padding=(0, 2))
        row.add_column(width=5, justify="right")
        row.add_column(width=16)
        row.add_column()
        row.add_row(Text(f"{seconds:.1f}s", style="dim"), Text(name), Text("\n".join(found)))
        self._console.print(row)

    def figures(self, lines: list[Line], layers: list[str]) -> None:
        """Every comparison, as multiples of its budget."""
        self.line()
        self.line(
            "Largest error, as a multiple of what float32 may be wrong by; above 1 fails:", "bold"
        )
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        table.add_column("compared")
        for layer in layers:
            table.add_column(f"layer {layer}" if layer == layers[0] else layer, justify="right")
        table.add_column("absolute", justify="right")
        for n, line in enumerate(lines):
            if n == 0 or line.group != lines[n - 1].group:
                table.add_row(Text(line.group, style="italic"))
            cells = [
                Text(f"{ratio:.2f}", style="" if ratio <= 1.0 else "red") for ratio in line.ratios
            ]
            table.add_row(f" {line.name}", *cells, f"{max(line.errors):.1e}")
        self._console.print(table)

    def wrong_rule(self, findings: list[Finding], wrong: Report) -> None:
        """What the wrong rule did, layer by layer."""
        self.line(
            "The same weights under a wrong rule (clip at the window, not zero outside):", "bold"
        )
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        for heading in (
            "layer",
            "output off by",
            "x budget",
            "wrong scores\nin window",
            "\noutside it",
            "\nharness",
        ):
            table.add_column(heading, justify="left" if "harness" in heading else "right")
        for finding in findings:
            table.add_row(
                finding.layer,
                f"{finding.error:.2f}",
                f"{finding.ratio:,.0f}",
                str(finding.wrong_inside),
                f"{finding.wrong_outside} of {finding.outside}",
                Text("caught", "green") if finding.caught else Text("not caught", "red"),
            )
        self._console.print(table)
        if wrong.blame():
            self.line(f"What the harness says: {wrong.blame()[0]}.")
            for check in wrong.of(Verdict.FAIL)[:1]:
                self.line(check.finding.partition("; would pass")[0], "dim")
        self.line()

    def verdict(self, verdict: Verdict, text: str) -> None:
        """The verdict and a sentence."""
        self._console.print(
            Text.assemble((verdict.value, f"bold {_COLOURS[verdict]}"), f"  {text}")
        )
