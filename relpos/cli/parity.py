"""`relpos parity`: both twins against the float64 oracle, and against one another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, cast

import typer
from rich.console import Console

from relpos.errors import RelposError
from relpos.parity.report import Check
from relpos.parity.run import ALL_MODES, DTYPES, Request

__all__ = ["parity", "progress_bar"]


def parity(
    scheme: Annotated[
        list[str] | None,
        typer.Option(help="A scheme, or a row of the roster; again for more.  [default: all]"),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(help=f"A dtype; again for more.  [default: {', '.join(DTYPES)}]"),
    ] = None,
    device: Annotated[
        str,
        typer.Option(help="Where both run: cpu, cuda, cuda:1, tpu; auto takes the best there is."),
    ] = "auto",
    only: Annotated[
        str | None, typer.Option(help="One framework alone: torch or jax.", metavar="FRAMEWORK")
    ] = None,
    mode: Annotated[
        list[str] | None,
        typer.Option(help=f"A mode; again for more: {', '.join(ALL_MODES)}.  [default: all]"),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(help="A single case, as a failure names it; again for more."),
    ] = None,
    mutations: Annotated[
        bool, typer.Option("--mutations", help="Also break the twins on purpose: all must be seen.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="One line per mode, not per framework.")
    ] = False,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Every case in every dtype and mode: hours.")
    ] = False,
    json: Annotated[
        Path | None, typer.Option(help="Write the report as JSON.", metavar="FILE")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(help="Write the report as JUnit XML.", metavar="FILE")
    ] = None,
) -> None:
    """Judge both twins against the float64 oracle: values, gradients, every mode and dtype.

    Ends with a verdict and its exit code: 0 PASS, 1 FAIL, 2 INCONCLUSIVE or unable to run.
    """
    from relpos.parity.files import to_json, to_junit, write_whole
    from relpos.parity.run import Runner
    from relpos.parity.terminal import show

    request = Request(
        schemes=() if "all" in (scheme or ()) else tuple(scheme or ()),
        dtypes=tuple(dtype or ()),
        only=cast("Literal['torch', 'jax'] | None", only),
        modes=tuple(mode or ()),
        cases=tuple(case or ()),
        device=device,
        mutations=mutations,
        thorough=thorough,
    )
    runner = Runner(request)
    with progress_bar() as tell:
        report = runner.run(tell, oracle_beside=True)
    show(report, Console(highlight=False), side_of=None if verbose else _framework)
    try:
        if json is not None:
            write_whole(json, to_json(report))
        if junit is not None:
            write_whole(junit, to_junit(report))
    except OSError as error:
        raise RelposError(
            "a report must be written where a file can be",
            got=str(error),
            expected="a folder that exists and can be written to",
        ) from error
    raise typer.Exit(report.verdict.exit_code)


def _framework(check: Check) -> str:
    """The framework that a check is about, or both."""
    if " against " in check.side:
        return "torch - jax"
    return "torch" if check.side.startswith("torch") else "jax"


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar on stderr where that is a terminal; nothing elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("starting")

        def tell(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=name)

        yield tell
