"""`relpos demo`: a real voice's relative attention in both frameworks, against an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relpos.cli.convert import explained

__all__ = ["demo"]


def demo(
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Another voice of the family: an ONNX file with VITS's names, as Piper's have.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the report.")] = Path(
        "relpos-demo"
    ),
    keep_weights: Annotated[
        bool,
        typer.Option("--keep-weights", help="Write the converted weights into the folder too."),
    ] = False,
) -> None:
    """Prove the twins equal on a real text-to-speech model, in about 20 seconds.

    The model's attention layers have relative key and value tables. The demo reads them from the
    ONNX file, converts them to PyTorch and to Flax, and feeds every layer what it gets in the model
    when onnxruntime runs a sentence. It compares outputs and gradients with onnxruntime, with a
    float64 oracle and with one another, as multiples of the error that float32 may make; converts
    the weights back to the same bits; shows how far off a wrong rule would be; and draws what the
    model learned about distance.

    The packaged voice is checked by its hash. Of another voice everything is read off its shapes:
    the head width is the last axis of emb_rel_k, the window its rows. The sentence needs Piper's
    JSON file beside it; without that the tokens are numbers in the voice's range.

    Writes report.md, report.json, audit.json and pattern.png, replacing earlier ones. The exit code
    is 0 if everything passed, 1 if something failed, 2 if it could not run.
    """
    from relpos.demo.run import run_demo
    from relpos.demo.screen import Screen, plain_console
    from relpos.demo.summary import summarise

    screen = Screen(plain_console())
    with explained():
        report = run_demo(model, out, screen, keep_weights=keep_weights)
    summarise(report, out, screen)
    raise typer.Exit(report.verdict.exit_code)
