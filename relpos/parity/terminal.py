"""A report on a terminal: a table of worst ratios, what is wrong, the verdict."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from relpos.parity.report import Check, Report
from relpos.parity.verdict import Verdict

__all__ = ["ratio_text", "render", "show", "table"]

#: The line of the table that a check belongs to.
SideOf = Callable[[Check], str]

_STYLES = {Verdict.PASS: "green", Verdict.FAIL: "bold red", Verdict.INCONCLUSIVE: "yellow"}
#: Findings shown in full; the others are counted.
_SHOWN = 10


def ratio_text(ratio: float | None) -> Text:
    """A ratio in four characters: red above 1; a dot where nothing was compared."""
    if ratio is None:
        return Text("   ·", style="dim")
    style = "bold red" if ratio > 1.0 else ""
    shown = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}" if ratio < 1e4 else f"{ratio:.0e}"
    return Text(f"{shown:>4}", style=style)


def table(report: Report, *, side_of: SideOf | None = None) -> Table:
    """One line per subject and side: the worst value and gradient of each dtype.

    Args:
        report: The report; checks without a dtype, which are exact, are left to `render`.
        side_of: Joins sides into one line; None keeps each apart.
    """
    name = side_of or (lambda check: check.side)
    checks = [check for check in report.checks if check.dtype]
    dtypes = list(dict.fromkeys(check.dtype for check in checks))
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    grid.add_column("", no_wrap=True)
    grid.add_column("", no_wrap=True)
    for dtype in dtypes:
        grid.add_column(f"{dtype}\nvalue grad", justify="right", no_wrap=True)
    grid.add_column("\nchecks", justify="right", no_wrap=True)
    previous = ""
    for subject, side in dict.fromkeys((check.subject, name(check)) for check in checks):
        of_line = [c for c in checks if (c.subject, name(c)) == (subject, side)]
        verdict = Verdict.of(check.verdict for check in of_line)
        cells = []
        for dtype in dtypes:
            part = Report([check for check in of_line if check.dtype == dtype])
            value, gradient = (part.worst_ratio(gradients=wanted) for wanted in (False, True))
            cells.append(ratio_text(value) + Text(" ") + ratio_text(gradient))
        shown = Text("" if subject == previous else subject, style="bold cyan")
        count = Text(str(len(of_line)), style=_STYLES[verdict])
        grid.add_row(shown, Text(side, style=_STYLES[verdict]), *cells, count)
        previous = subject
    return grid


def render(report: Report, *, side_of: SideOf | None = None) -> RenderableType:
    """The table, what is exact, the findings and the verdict."""
    parts: list[RenderableType] = [table(report, side_of=side_of), Text()]
    exact = [check for check in report.checks if not check.dtype]
    for side in dict.fromkeys(check.side for check in exact):
        of_side = [check for check in exact if check.side == side]
        passed = sum(check.verdict is Verdict.PASS for check in of_side)
        style = _STYLES[Verdict.of(check.verdict for check in of_side)]
        parts.append(Text.assemble((f"{side}: {passed} of {len(of_side)}", style)))
        if any(check.note for check in of_side):
            parts.append(_notes(of_side))
    parts.append(Text())
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        found = report.of(verdict)
        parts += [_finding(check) for check in found[:_SHOWN]]
        if len(found) > _SHOWN:
            parts.append(Text(f"... and {len(found) - _SHOWN} more {verdict.value}", style="dim"))
    parts += [Text(f"Blame: {sentence}", style="bold") for sentence in report.blame()]
    parts.append(_summary(report))
    return Group(*parts)


def show(report: Report, console: Console | None = None, *, side_of: SideOf | None = None) -> None:
    """Print a report."""
    (console or Console(highlight=False)).print(render(report, side_of=side_of), crop=False)


def _notes(checks: list[Check]) -> Table:
    """One line per check that has something to say though it passed."""
    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 0, 0, 2), style="dim")
    for check in checks:
        if check.note:
            grid.add_row(check.case, check.note)
    return grid


def _finding(check: Check) -> RenderableType:
    head = Text.assemble((check.verdict.value, _STYLES[check.verdict]), "  ", (check.name, "bold"))
    parts: list[RenderableType] = [head, Padding(Text(check.finding), (0, 0, 0, 2))]
    if check.command is not None:
        # In one piece, so that it can be copied: the terminal breaks it, not we.
        command = Text(f"  {check.command}", style="cyan", no_wrap=True, overflow="ignore")
        parts.append(command)
    return Group(*parts, Text())


def _summary(report: Report) -> Text:
    verdict = report.verdict
    counts = ", ".join(f"{len(report.of(v))} {v.value}" for v in Verdict if report.of(v))
    return Text.assemble(
        (verdict.value, _STYLES[verdict]),
        f"  {report.entries:,} numbers in {report.comparisons:,} arrays, {len(report.checks):,} "
        f"checks ({counts or 'none'}), {report.seconds:.0f} s\n"
        "Ratios are multiples of the error budget: at most 1 passes.",
    )
