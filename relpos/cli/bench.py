"""`relpos bench`: what relative positions cost, beside plain attention and beside others."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated, Literal, cast

import typer
from rich.console import Console

from relpos.bench.works import WORKS
from relpos.cli.convert import explained
from relpos.cli.parity import progress_bar
from relpos.errors import SettingError

__all__ = ["bench"]


def bench(
    length: Annotated[
        list[int] | None,
        typer.Option(help="A length L; again for more.  [default: 256, 1024, 2048, 4096, 8192]"),
    ] = None,
    work: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Of: {'; '.join(w.name for w in WORKS)}. Again for more.  [default: all]"
        ),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option(help="dense or blockwise, beside what auto chooses; again for more."),
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="One framework alone: torch or jax.", metavar="FRAMEWORK")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="L=512 and 1024, the main contenders: two minutes.")
    ] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Times of each.  [default: 7]")] = None,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Measure peaks of memory too.")
    ] = True,
    heads: Annotated[int, typer.Option(min=1, help="Heads H.")] = 8,
    head_dim: Annotated[int, typer.Option(min=1, help="Head width d.")] = 64,
    batch: Annotated[int, typer.Option(min=1, help="Batch B.")] = 1,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    json: Annotated[
        Path | None, typer.Option(help="Write everything measured as JSON.", metavar="FILE")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw cost against length, .png or .svg.", metavar="FILE")
    ] = None,
) -> None:
    """Time our layers and functions in turn with plain attention and with what others use.

    Times are ratios to plain attention without positions in the same round of the same run, as a
    median and half the distance of the quartiles, then the share of the machine's rate of matrix
    products. Peaks of memory, at the two longest lengths, come from a fresh process each. What is
    not installed is listed as missing. Ctrl-C ends a run with what it has measured. Files replace
    earlier ones.
    """
    from relpos.bench.contender import Size
    from relpos.bench.run import Request, run
    from relpos.bench.table import render
    from relpos.parity.files import write_whole
    from relpos.weights.files import write_whole as write_bytes

    for name, given, known in (
        ("--dtype", dtype, ("float32", "bfloat16", "float16")),
        ("--device", device, ("cpu", "cuda")),
        ("--plot", "png" if plot is None else plot.suffix.lower().lstrip("."), ("png", "svg")),
    ):
        if given not in known:
            raise SettingError(f"{name} must be known", got=repr(given), expected=known)
    lengths = tuple(length or ((512, 1024) if quick else Request.lengths))
    request = Request(
        lengths=lengths,
        size=Size(B=batch, H=heads, d=head_dim, dtype=dtype, device=device),
        works=tuple(work or ()),
        kernels=tuple(kernel or ()),
        only=only,
        rounds=rounds or (3 if quick else Request.rounds),
        peaks=0 if not memory else 1 if quick else Request.peaks,
        quick=quick,
    )
    with progress_bar() as tell:
        result = run(request, tell)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140
    console.print(render(result))
    console.print(f"{result.seconds:.0f} s." + (" Stopped before the end." * result.stopped))
    with explained():
        if json is not None:
            write_whole(json, json_format.dumps(result.to_dict(), indent=1) + "\n")
        if plot is not None:
            from relpos.bench.picture import picture

            form = cast("Literal['png', 'svg']", plot.suffix.lower().lstrip("."))
            write_bytes(plot, [picture(result, form=form)], overwrite=True)
