"""Makes the pages of the schemes, with their pictures, while mkdocs builds the documentation.

All of it is read off the schemes: a new one needs nothing here.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relpos.errors import RelposError
from relpos.plot import Pattern, fresh, longest, pattern_of
from relpos.plot.pattern import SAMPLES
from relpos.schemes import SCHEMES, Scheme
from relpos.schemes.catalogue import (
    blocks,
    escaped,
    example_of,
    explanation,
    fitting_example,
    folded,
    nested,
    own_arrays,
    references,
    summary,
)
from relpos.weights import LAYOUTS
from relpos.weights.reading import OPTIONS

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
#: Sizes of the layers that the pages show: model width, heads, tokens.
D, H, L = 128, 4, 96
#: Characters of a line of code that a page shows without scrolling.
WIDTH = 84
#: Members that the facts on the page say already.
_SAID = (
    "name|paper|url|used_by|extrapolates|causal_only|dense_only|content_only|kernels"
    "|translation_invariant"
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put a page per scheme into the navigation, below their catalogue."""
    pages: list[Any] = ["schemes/index.md", *({name: page_of(s)} for name, s in SCHEMES.items())]
    config.nav = [{"Schemes": pages} if "Schemes" in entry else entry for entry in config.nav or []]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages and pictures, which exist nowhere else."""
    from mkdocs.structure.files import File

    made: dict[str, str | bytes] = {"schemes/index.md": catalogue_page()}
    for scheme in SCHEMES.values():
        picture = picture_of(scheme)
        made[page_of(scheme)] = scheme_page(scheme, with_picture=picture is not None)
        if picture is not None:
            made[picture_file(scheme)] = picture
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, **rest: Any) -> str:
    """Put what there is where a page says `::: every layout` or `::: every name of PACKAGE`.

    And the schemes for longer inputs where it says `<!-- schemes: longer -->`.
    """
    markdown = markdown.replace("<!-- schemes: longer -->", for_longer_inputs())
    markdown = re.sub(r"^::: every layout$", lambda _: layouts(), markdown, flags=re.MULTILINE)
    return re.sub(
        r"^::: every name of (\S+)$",
        lambda found: "\n\n".join(f"::: {name}" for name in public_names(found[1])),
        markdown,
        flags=re.MULTILINE,
    )


def for_longer_inputs() -> str:
    """Links to the schemes that are measured beyond the lengths they were trained on."""
    return ", ".join(
        f"[`{name}`]({page_of(scheme)})"
        for name, scheme in SCHEMES.items()
        if scheme.extrapolates and name != "NoPosition"
    )


def layouts() -> str:
    """The namings of checkpoints that are known, as a table."""
    rows = [
        f"| `{layout.name}` | {escaped(layout.description)} | "
        f"{', '.join(f'`{OPTIONS.get(argument, argument)}`' for argument in layout.arguments)} |"
        for layout in LAYOUTS.values()
    ]
    return "\n".join(["| layout | whose naming | what must be said |", "|---|---|---|", *rows])


def public_names(package: str) -> list[str]:
    """The classes and functions that a package exports, by its modules that define them.

    Read off its imports: the documentation is built without the frameworks.
    """
    file = ROOT.joinpath(*package.split("."), "__init__.py")
    return [
        f"{statement.module}.{alias.name}"
        for statement in ast.parse(file.read_text("utf-8")).body
        if isinstance(statement, ast.ImportFrom)
        and f"{statement.module}.".startswith(f"{package}.")
        for alias in statement.names
        # What is written in capitals is a table, which its module explains.
        if not alias.name.isupper()
    ]


def page_of(scheme: type[Scheme]) -> str:
    """Where a scheme's page stands."""
    return f"schemes/{scheme.name.lower()}.md"


def picture_file(scheme: type[Scheme]) -> str:
    """Where its picture stands."""
    return f"schemes/{scheme.name.lower()}.png"


def catalogue_page() -> str:
    """All schemes in one table."""
    rows = [
        f"| [`{name}`]({scheme.name.lower()}.md) | {escaped(summary(scheme))} | {scheme.paper} "
        f"| {'yes' if scheme.extrapolates else 'no'} | {'past' if scheme.causal_only else 'all'} "
        f"| {', '.join(scheme.used_by)} |"
        for name, scheme in SCHEMES.items()
    ]
    return "\n".join(
        [
            "# Schemes",
            "",
            "Distance is always `j - i`, key position minus query position. [Which one to "
            "take](../choosing.md) is a page of its own.",
            "",
            "| scheme | what it is | paper | longer | keys | used by |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            "longer: a paper measures that it works beyond the lengths it was trained on. keys: "
            "those that a query may read, all or those of the past alone.",
            "",
            "In a terminal: `relpos schemes`, `relpos schemes NAME`, `relpos plot NAME`.",
            "",
        ]
    )


def scheme_page(scheme: type[Scheme], *, with_picture: bool) -> str:
    """A scheme's page: facts, formula, picture, names used elsewhere, the class."""
    first, *others = references(scheme)
    example = fitting_example(scheme, D, H)
    arrays = own_arrays(example, D, H)
    learned = ", ".join(f"`{array.name}` {list(array.shape)}" for array in arrays) or "nothing"
    facts = {
        "paper": f"[{scheme.paper}]({first})"
        + "".join(f", [{other.removeprefix('https://')}]({other})" for other in others),
        "used by": ", ".join(scheme.used_by) or "no public checkpoint that we know of",
        f"learns (D={D}, H={H}, d={D // H})": f"{learned}, for `{example}`",
        "longer inputs": "a paper measures that it works beyond the lengths it was trained on"
        if scheme.extrapolates
        else "no paper named here measures that it works beyond the lengths it was trained on",
        "keys read": "those of the past alone" if scheme.causal_only else "all, or causal",
        "kernels": ", ".join(f"`{kernel}`" for kernel in scheme.kernels()),
    }
    parts = [f"# {scheme.name}", escaped(summary(scheme)), "| | |\n|---|---|"]
    parts[-1] += "".join(f"\n| {name} | {text} |" for name, text in facts.items())
    if with_picture:
        parts += [
            "## What it looks like",
            f"![Heat maps and curves of what {scheme.name} adds to scores]"
            f"({scheme.name.lower()}.png){{ .pattern }}",
            f"Drawn by `relpos plot {scheme.name.lower()}`, with {tokens(example)} tokens.",
        ]
    parts += ["## Formula", *_explained(explanation(scheme))]
    parts += [
        "## Settings",
        f"::: {scheme.__module__}.{scheme.__qualname__}\n"
        f"    options:\n"
        f"      heading_level: 3\n"
        f'      filters: ["!^_", "!^({_SAID})$"]',
    ]
    for setting, kinds in nested(scheme).items():
        parts.append(f"## What `{setting}` may be")
        owner = next(other for other in SCHEMES.values() if kinds in nested(other).values())
        if owner is not scheme:
            parts.append(f"The same as in [{owner.name}]({owner.name.lower()}.md).")
            continue
        for text in dict.fromkeys(map(explanation, kinds)):
            parts += _explained(text)
        parts += [
            f"::: {kind.__module__}.{kind.__qualname__}\n"
            f"    options:\n"
            f"      heading_level: 3\n"
            f"      members: []"
            for kind in kinds
        ]
    return "\n\n".join(parts) + "\n"


def _explained(text: str) -> list[str]:
    """A module's docstring as Markdown."""
    return [
        f"```text\n{folded(block, WIDTH)}\n```" if kind == "formula" else escaped(block)
        for kind, block in blocks(text)
    ]


def tokens(scheme: Scheme) -> int:
    """The tokens of its picture: no more than are drawn one by one."""
    return longest(scheme, L if scheme.translation_invariant else SAMPLES)


def pattern(scheme: Scheme) -> tuple[Pattern, str]:
    """The pattern of fresh parameters, or of larger ones where fresh ones add nothing."""
    d = D // H
    params, source = fresh(scheme, H, d), "Fresh parameters."
    length = tokens(scheme)
    shown = pattern_of(scheme, params, num_heads=H, head_dim=d, length=length)
    if shown.is_empty and params:
        rng = np.random.default_rng(0)
        params = {name: rng.standard_normal(array.shape) for name, array in params.items()}
        source = "Parameters drawn from N(0, 1); fresh ones add 0."
        shown = pattern_of(scheme, params, num_heads=H, head_dim=d, length=length)
    return shown, source if params else "No parameters."


def picture_of(scheme: type[Scheme]) -> bytes | None:
    """The picture of what a scheme adds, as PNG; None if it adds nothing."""
    from relpos.plot.draw import picture

    try:
        shown, source = pattern(example_of(scheme))
    except RelposError:
        return None
    if shown.is_empty:
        return None
    return picture(shown, f"{source} H={H}, d={D // H}.")
