"""`relpos schemes`: the catalogue, read from the schemes' own docstrings and settings."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import textwrap
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from relpos.errors import SettingError
from relpos.schemes import SCHEMES, Scheme

__all__ = ["example_of", "schemes"]

#: Stands in for a whole number that has no default, so that shapes can be shown.
EXAMPLE_NUMBER = 16


def schemes(
    name: Annotated[
        str | None, typer.Argument(help="One scheme, to see all about it.", metavar="NAME")
    ] = None,
    heads: Annotated[int, typer.Option(min=1, help="Heads H of the shapes shown.")] = 4,
    head_dim: Annotated[int, typer.Option(min=1, help="Head width d of the shapes shown.")] = 64,
) -> None:
    """List the schemes, or show one: its formula, settings, arrays and paper."""
    console = Console(highlight=False)
    if name is None:
        _print_catalogue(console, heads, head_dim)
    else:
        _print_scheme(console, _find(name), heads, head_dim)


def example_of(scheme: type[Scheme]) -> Scheme:
    """The scheme with its defaults, and with example values where it has none.

    Example:
        >>> from relpos import Shaw
        >>> example_of(Shaw).parameters(num_heads=4, head_dim=64)[0].shape
        (1, 33, 64)
    """
    hints = get_type_hints(scheme)
    values: dict[str, Any] = {}
    for setting in dataclasses.fields(scheme):
        if setting.default is dataclasses.MISSING:
            hint = hints[setting.name]
            is_choice = get_origin(hint) is Literal
            values[setting.name] = get_args(hint)[0] if is_choice else EXAMPLE_NUMBER
    return scheme(**values)


def _find(name: str) -> type[Scheme]:
    for known, scheme in SCHEMES.items():
        if known.lower() == name.lower():
            return scheme
    raise SettingError(
        "a scheme must be known by name", got=repr(name), expected="one of " + ", ".join(SCHEMES)
    )


def _print_catalogue(console: Console, heads: int, head_dim: int) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 1, 0))
    table.add_column("scheme", style="bold cyan", no_wrap=True)
    table.add_column("what it is")
    table.add_column(f"learned arrays (H={heads}, d={head_dim})", overflow="fold")
    for name, scheme in SCHEMES.items():
        about = Text(_summary(scheme))
        for paper in _papers(scheme):
            about.append("\n" + paper, style="dim")
        table.add_row(name, about, _arrays(scheme, heads, head_dim))
    console.print(table)
    console.print("\nFormula, settings and names used elsewhere: relpos schemes NAME")


def _print_scheme(console: Console, scheme: type[Scheme], heads: int, head_dim: int) -> None:
    _print_module_doc(console, scheme)

    settings = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    settings.add_column("setting", style="bold cyan", no_wrap=True)
    settings.add_column("default", no_wrap=True)
    settings.add_column("meaning")
    meanings = _attributes(scheme)
    for setting in dataclasses.fields(scheme):
        required = setting.default is dataclasses.MISSING
        default = Text("required", style="yellow") if required else Text(repr(setting.default))
        settings.add_row(setting.name, default, Text(meanings[setting.name]))
    if settings.row_count:
        console.print(settings)
        console.print()

    console.print(f"[bold]learned arrays[/] of {example_of(scheme)}, H={heads}, d={head_dim}")
    console.print(Padding(_arrays(scheme, heads, head_dim), (0, 0, 0, 2)))
    console.print("\n[bold]paper[/]")
    for paper in _papers(scheme):
        console.print(f"  {paper}", soft_wrap=True)


def _arrays(scheme: type[Scheme], heads: int, head_dim: int) -> Text:
    parameters = example_of(scheme).parameters(heads, head_dim)
    lines = [f"{parameter.name} {list(parameter.shape)}" for parameter in parameters]
    return Text("\n".join(lines) or "none")


def _print_module_doc(console: Console, scheme: type[Scheme]) -> None:
    """Print a module docstring: prose wrapped, formulas as they stand, name tables as tables."""
    doc = (sys.modules[scheme.__module__].__doc__ or "").strip()
    for block in doc.split("\n\n"):
        if block.startswith("|"):
            header, _, *rows = (
                [c.strip() for c in line.split("|")[1:-1]] for line in block.split("\n")
            )
            table = Table(*header, box=None, pad_edge=False, padding=(0, 2, 0, 0))
            for row in rows:
                table.add_row(*map(Text, row))
            console.print(table)
        elif block.startswith(" "):
            console.print(Text(block), soft_wrap=True)
        else:
            console.print(Text(block.replace("\n", " ")))
        console.print()


def _summary(scheme: type[Scheme]) -> str:
    return (inspect.getdoc(scheme) or "").partition("\n")[0]


def _papers(scheme: type[Scheme]) -> list[str]:
    return re.findall(r"https://[^\s,)]+[^\s,).]", inspect.getdoc(scheme) or "")


def _attributes(scheme: type[Scheme]) -> dict[str, str]:
    """Setting -> its line in the docstring's section `Attributes:`."""
    doc = inspect.getdoc(scheme) or ""
    section = re.search(r"^Attributes:\n((?:    .*\n)+)", doc, re.MULTILINE)
    if section is None:
        return {}
    entries = re.split(r"^(\w+): ", textwrap.dedent(section[1]), flags=re.MULTILINE)
    names, texts = entries[1::2], entries[2::2]
    return {name: " ".join(text.split()) for name, text in zip(names, texts, strict=True)}
