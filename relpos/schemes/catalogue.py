"""What the schemes say about themselves, read off their docstrings, settings and facts.

For those who show it: the command line and the documentation. A new scheme needs nothing here.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import textwrap
from typing import Any, Literal, get_args, get_origin, get_type_hints

from relpos.errors import SettingError
from relpos.schemes.base import Parameter, Scheme
from relpos.schemes.no_position import NoPosition
from relpos.settings import AttentionSettings

__all__ = [
    "blocks",
    "escaped",
    "example_of",
    "explanation",
    "folded",
    "meanings",
    "own_arrays",
    "references",
    "summary",
]

#: Stands in for a whole number that has no default, so that shapes can be shown.
EXAMPLE_NUMBER = 16


def example_of(scheme: type[Scheme]) -> Scheme:
    """The scheme with its defaults, and with example values where it has none.

    Where those do not fit together, it is the first one that the parity roster has.

    Example:
        >>> from relpos import Shaw
        >>> example_of(Shaw)
        Shaw(left=16, right=16, keys=True, values=True, per_head=False, clip=True)
    """
    from relpos.parity.roster import ROSTER

    hints = get_type_hints(scheme)
    values: dict[str, Any] = {}
    for setting in dataclasses.fields(scheme):
        if setting.default is dataclasses.MISSING:
            hint = hints[setting.name]
            is_choice = get_origin(hint) is Literal
            values[setting.name] = get_args(hint)[0] if is_choice else EXAMPLE_NUMBER
    try:
        return scheme(**values)
    except SettingError:
        return next(row.scheme for row in ROSTER.values() if type(row.scheme) is scheme)


def own_arrays(
    scheme: Scheme, embed_dim: int, num_heads: int, head_dim: int | None = None
) -> tuple[Parameter, ...]:
    """What a layer of these sizes learns for the scheme alone, beside its projections.

    Raises:
        SettingError: The sizes are impossible for this scheme.

    Example:
        >>> from relpos import T5
        >>> [parameter.shape for parameter in own_arrays(T5(), embed_dim=512, num_heads=8)]
        [(8, 32)]
    """
    plain, whole = (
        AttentionSettings(embed_dim, num_heads, each, head_dim=head_dim, causal=scheme.causal_only)
        for each in (NoPosition(), scheme)
    )
    projections = {parameter.name for parameter in plain.parameters()}
    return tuple(p for p in whole.parameters() if p.name not in projections)


def summary(scheme: type[Scheme]) -> str:
    """The first sentence of its docstring."""
    return inspect.getdoc(scheme).partition("\n\n")[0].replace("\n", " ")  # type: ignore[union-attr]


def references(scheme: type[Scheme]) -> list[str]:
    """The addresses of its papers, the one that proposed it first."""
    found = re.findall(r"https://[^\s,)]+[^\s,).]", inspect.getdoc(scheme) or "")
    return list(dict.fromkeys((scheme.url, *found)))


def meanings(scheme: type[Scheme]) -> dict[str, str]:
    """Setting -> its entry in the docstring's section `Attributes:`.

    Example:
        >>> from relpos import RoPE
        >>> meanings(RoPE)["rotary_dim"]
        'Channels that are rotated, from the first; even. None rotates all.'
    """
    found: dict[str, str] = {}
    for kind in reversed(scheme.__mro__):
        doc = inspect.cleandoc(kind.__doc__ or "")
        section = re.search(r"^Attributes:\n((?:(?:    .*)?\n)+)", doc + "\n", re.MULTILINE)
        if section is not None:
            entries = re.split(r"^(\w+): ", textwrap.dedent(section[1]), flags=re.MULTILINE)
            for name, text in zip(entries[1::2], entries[2::2], strict=True):
                found[name] = " ".join(text.split())
    return found


def explanation(scheme: type[Scheme]) -> str:
    """The docstring of its module: formula, symbols in words, names used elsewhere."""
    return (sys.modules[scheme.__module__].__doc__ or "").strip()


def blocks(text: str) -> list[tuple[Literal["prose", "formula", "table"], str]]:
    """A module's docstring in pieces: prose on one line, formulas and tables as they stand."""
    pieces: list[tuple[Literal["prose", "formula", "table"], str]] = []
    for block in re.split(r"\n\s*\n", text):
        if block.startswith("|"):
            pieces.append(("table", block))
        elif block.startswith(" "):
            pieces.append(("formula", textwrap.dedent(block)))
        else:
            pieces.append(("prose", " ".join(block.split())))
    return pieces


def folded(formula: str, width: int) -> str:
    """A formula in lines of `width`: remarks move closer, the rest goes on right of its `=`.

    Example:
        >>> print(folded("score = q + k      for all i\\nout   = v", 22))
        score = q + k   for
                all i
        out   = v
    """
    lines = []
    for line in formula.splitlines():
        if len(line) > width:
            line = re.sub(r"(?<=[^\s=]) {3,}(?=[^\s=:])", "   ", line)
        sign = re.search(r"[=:] ", line)
        hang = " " * (sign.end() if sign else len(line) - len(line.lstrip()) + 4)
        lines += textwrap.wrap(
            line, width, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False
        ) or [""]
    return "\n".join(lines)


def escaped(prose: str) -> str:
    """Prose for Markdown: signs of formulas stand for themselves, except between backticks.

    Example:
        >>> escaped("`key_table` [N, d], added to <q, k>")
        '`key_table` \\\\[N, d\\\\], added to &lt;q, k>'
    """
    pieces = re.split(r"(`[^`]*`)", prose)
    return "".join(
        piece
        if piece.startswith("`")
        else re.sub(r"([*\[\]])", r"\\\1", piece).replace("<", "&lt;")
        for piece in pieces
    )
