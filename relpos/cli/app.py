"""The subcommands, put together.

A subcommand is a file `relpos/cli/NAME.py` with a function NAME and its name in `COMMANDS`. Its
file is imported even for `relpos --help`, so it imports torch, jax and the like inside its
functions, where they are needed.
"""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from relpos import __version__

__all__ = ["COMMANDS", "build_app"]

#: The subcommands, in the order of the help text.
COMMANDS = ("demo", "parity", "convert", "inspect", "schemes", "plot", "bench")


def build_app() -> typer.Typer:
    """The command line with every subcommand of `COMMANDS`."""
    app = typer.Typer(
        name="relpos",
        help="Relative positions for attention, the same in PyTorch and in JAX/Flax.",
        no_args_is_help=True,
        add_completion=False,
        # A traceback is for people who debug relpos; Python's own shows it best.
        pretty_exceptions_enable=False,
        # Brackets in help texts are shapes such as [B, L, D], not rich's markup.
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in COMMANDS:
        module = importlib.import_module(f"relpos.cli.{name}")
        app.command(name)(getattr(module, name))
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"relpos {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    # Typer reads the options of `relpos` itself from this signature; --version acts on its own.
    pass
