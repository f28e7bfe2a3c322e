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
from relpos.schemes.base import Parameter, Scheme, Settings
from relpos.schemes.no_position import NoPosition
from relpos.settings import AttentionSettings

__all__ = [
    "blocks",
    "escaped",
    "example_of",
    "explanation",
    "fitting_example",
    "folded",
    "meanings",
    "nested",
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


def fitting_example(
    scheme: type[Scheme], embed_dim: int, num_heads: int, head_dim: int | None = None
) -> Scheme:
    """The example, with the layer's width D where one of its settings has to be just that."""
    example = example_of(scheme)
    for setting in (None, *dataclasses.fields(scheme)):
        if setting is None or setting.default is dataclasses.MISSING:
            changes: dict[str, Any] = {} if setting is None else {setting.name: embed_dim}
            try:
                fitting = dataclasses.replace(example, **changes)
                own_arrays(fitting, embed_dim, num_heads, head_dim)
            except SettingError:
                continue
            return fitting
    return example


def summary(scheme: type[Scheme | Settings]) -> str:
    """The first sentence of its docstring."""
    return inspect.getdoc(scheme).partition("\n\n")[0].replace("\n", " ")  # type: ignore[union-attr]


def nested(scheme: type[Scheme]) -> dict[str, list[type[Settings]]]:
    """Setting -> the kinds of settings that may stand in it, for those that have settings inside.

    Example:
        >>> from relpos import RoPE
        >>> nested(RoPE)["scaling"][0].name
        'LinearScaling'
    """
    kinds = {
        field.name: [
            option
            for option in get_args(get_type_hints(scheme)[field.name])
            if isinstance(option, type) and issubclass(option, Settings)
        ]
        for field in dataclasses.fields(scheme)
    }
    return {name: found for name, found in kinds.items() if found}


def references(scheme: type[Scheme]) -> list[str]:
    """The addresses of its papers, the one that proposed it first, those of inner settings last."""
    inside = [kind for kinds in nested(scheme).values() for kind in kinds]
    docs = (inspect.getdoc(kind) or "" for kind in (scheme, *inside))
    found = re.findall(r"https://[^\s,;)]+[^\s,;).]", "\n".join(docs))
    return list(dict.fromkeys((scheme.url, *found)))


def meanings(scheme: type[Scheme | Settings]) -> dict[str, str]:
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


def explanation(scheme: type[Scheme | Settings]) -> str:
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
        score = q + k
                for all i
        out   = v
    """
    lines: list[str] = []
    excess = max(0, max(map(len, formula.splitlines())) - width)
    for line in formula.splitlines():
        # Right of the first equals sign, or else right of a label in a column of its own.
        start = re.match(r".*?(?<![<>])[=:] |\s*\S+ {2,}", line)
        hang = start.end() if start else len(line) - len(line.lstrip()) + 4
        # By as much in every line, so that what stands in a column stays in it.
        line = line[:hang] + re.sub(
            r"(?<=\S) {3,}", lambda gap: " " * max(3, len(gap[0]) - excess), line[hang:]
        )
        indent = " " * min(hang, width // 2)
        pieces = [line]
        if len(line) > width:
            # A remark is the first to go on a line of its own.
            first, *others = re.split(r"(?<=\S) {3,}(?=\S)", line[hang:])
            pieces = [line[:hang] + first, *(indent + other for other in others)]
        for piece in pieces:
            lines += textwrap.wrap(
                piece,
                width,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
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
