"""Makes Markdown of the docstrings, for griffe, which reads them, and for what shows them.

In a docstring `<q, k>`, `[B, L, D]` and `H*d` stand for themselves, an indented paragraph is a
formula, and examples stand under `Example:`.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe

from relpos.schemes.catalogue import escaped

__all__ = ["Docstrings", "as_markdown"]


class Docstrings(griffe.Extension):
    """Applied to everything that griffe reads."""

    def on_object(self, *, obj: griffe.Object, **rest: Any) -> None:
        """Rewrite its docstring; its own signature, which has the shapes, stands for overloads."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
        if isinstance(obj, griffe.Function):
            obj.overloads = None


def as_markdown(docstring: str) -> str:
    """The docstring with nothing in its prose that Markdown would take for markup."""
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(docstring))
    return "\n\n".join(map(_paragraph, paragraphs))


def _paragraph(text: str) -> str:
    if text.startswith("Example:\n"):
        return "Examples:\n" + text.removeprefix("Example:\n")
    if text.startswith(" "):
        return text
    return escaped(text)
