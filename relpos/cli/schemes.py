"""`relpos schemes`: the catalogue, read from the schemes' own docstrings, settings and facts."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from relpos.errors import SettingError
from relpos.schemes import SCHEMES, NoPosition, Scheme, find_scheme
from relpos.schemes.base import Settings
from relpos.schemes.catalogue import (
    blocks,
    explanation,
    fitting_example,
    folded,
    meanings,
    nested,
    own_arrays,
    references,
    summary,
)

__all__ = ["schemes"]

#: From this width on the arrays have a column of their own.
WIDE = 110


@dataclasses.dataclass(frozen=True)
class _Sizes:
    """Of the layer whose arrays are shown."""

    embed_dim: int
    num_heads: int
    head_dim: int | None

    def __str__(self) -> str:
        d = self.embed_dim // self.num_heads if self.head_dim is None else self.head_dim
        return f"D={self.embed_dim}, H={self.num_heads}, d={d}"


def schemes(
    name: Annotated[
        str | None, typer.Argument(help="One scheme, to see all about it.", metavar="NAME")
    ] = None,
    embed_dim: Annotated[int, typer.Option(min=1, help="Model width D of the shapes shown.")] = 512,
    heads: Annotated[int, typer.Option(min=1, help="Heads H of the shapes shown.")] = 8,
    head_dim: Annotated[
        int | None, typer.Option(min=1, help="Head width d of the shapes shown.  [default: D / H]")
    ] = None,
) -> None:
    """List the schemes, or show one: its formula, settings, arrays and papers."""
    console = Console(highlight=False)
    sizes = _Sizes(embed_dim, heads, head_dim)
    # Sizes that no layer can have are an error; what one scheme cannot have stands in its row.
    own_arrays(NoPosition(), embed_dim, heads, head_dim)
    if name is None:
        _print_catalogue(console, sizes)
    else:
        _print_scheme(console, find_scheme(name), sizes)


def _print_catalogue(console: Console, sizes: _Sizes) -> None:
    wide = console.width >= WIDE
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 1, 0))
    table.add_column("scheme", style="bold cyan", no_wrap=True)
    table.add_column("what it is, where from, used by" + ("" if wide else ", arrays"), ratio=3)
    if wide:
        table.add_column(f"arrays ({sizes})", ratio=2)
    for heading in ("longer", "keys", "kernels"):
        table.add_column(heading, no_wrap=True)
    for name, scheme in SCHEMES.items():
        about = Text(summary(scheme))
        about.append("\n" + "; ".join((scheme.paper, *_used_by(scheme))), style="dim")
        arrays = _arrays(scheme, sizes)
        if not wide:
            about.append("\n").append(arrays)
        table.add_row(
            name,
            about,
            *([arrays] if wide else []),
            "yes" if scheme.extrapolates else "no",
            "past" if scheme.causal_only else "all",
            "\n".join(scheme.kernels()),
        )
    console.print(table)
    legend = {
        "arrays": f"What a layer of {sizes} learns beside its projections.",
        "longer": "A paper measures that it works beyond the lengths it was trained on.",
        "keys": "Those that a query may read: all, or those of the past alone.",
        "kernels": "Those that can compute it; fused is torch's own, for longer inputs.",
    }
    notes = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for word, meaning in legend.items():
        notes.add_row(Text(word, style="bold"), meaning)
    console.print()
    console.print(notes)
    console.print("\nFormula, settings, papers and names used elsewhere: relpos schemes NAME")


def _print_scheme(console: Console, scheme: type[Scheme], sizes: _Sizes) -> None:
    _print_explanation(console, explanation(scheme))
    _print_settings(console, scheme)
    for name, kinds in nested(scheme).items():
        console.print(Text(f"What {name} may be", style="bold"))
        console.print()
        for text in dict.fromkeys(map(explanation, kinds)):
            _print_explanation(console, text)
        for kind in kinds:
            console.print(Text(kind.name, style="bold cyan"))
            console.print(Text(summary(kind)))
            _print_settings(console, kind)

    facts = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    facts.add_column(style="bold cyan", no_wrap=True)
    facts.add_column(overflow="fold")
    arrays = Text(f"of {_example(scheme, sizes)}, {sizes}:\n").append(_arrays(scheme, sizes))
    facts.add_row("learned arrays", arrays)
    facts.add_row("longer inputs", _longer(scheme))
    facts.add_row("keys read", "the past alone" if scheme.causal_only else "all, or causal")
    facts.add_row("kernels", ", ".join(scheme.kernels()))
    facts.add_row("used by", ", ".join(scheme.used_by) or "no public checkpoint that we know of")
    first, *others = references(scheme)
    facts.add_row("paper", f"{scheme.paper}, {first}")
    for other in others:
        facts.add_row("see also", other)
    console.print(facts)


def _print_explanation(console: Console, text: str) -> None:
    """Print a module's docstring: prose wrapped, formulas folded, tables as tables."""
    for kind, block in blocks(text):
        if kind == "table":
            _print_names(console, block)
        elif kind == "formula":
            lines = textwrap.indent(folded(block, console.width - 2), "  ")
            console.print(Text(lines), soft_wrap=True)
        else:
            console.print(Text(block))
        console.print()


def _print_settings(console: Console, kind: type[Scheme | Settings]) -> None:
    settings = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    settings.add_column("setting", style="bold cyan", no_wrap=True)
    settings.add_column("default", no_wrap=True)
    settings.add_column("meaning")
    texts = meanings(kind)
    for setting in dataclasses.fields(kind):
        required = setting.default is dataclasses.MISSING
        default = Text("required", style="yellow") if required else Text(repr(setting.default))
        settings.add_row(setting.name, default, Text(texts[setting.name]))
    if settings.row_count:
        console.print(settings)
    console.print()


def _print_names(console: Console, block: str) -> None:
    """Print a table of names in Markdown as a table of the terminal."""
    header, _, *rows = (
        [cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.split("\n")
    )
    table = Table(*header, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _example(scheme: type[Scheme], sizes: _Sizes) -> Scheme:
    return fitting_example(scheme, sizes.embed_dim, sizes.num_heads, sizes.head_dim)


def _arrays(scheme: type[Scheme], sizes: _Sizes) -> Text:
    try:
        arrays = own_arrays(
            _example(scheme, sizes), sizes.embed_dim, sizes.num_heads, sizes.head_dim
        )
    except SettingError as error:
        return Text(f"not at these sizes: {error}")
    lines = [f"{array.name} {list(array.shape)}" for array in arrays]
    return Text("\n".join(lines) or "no arrays")


def _longer(scheme: type[Scheme]) -> str:
    if scheme.extrapolates:
        return "a paper measures that it works beyond the lengths it was trained on"
    return "no paper that we name measures that it works beyond the lengths it was trained on"


def _used_by(scheme: type[Scheme]) -> tuple[str, ...]:
    return (", ".join(scheme.used_by),) if scheme.used_by else ()
