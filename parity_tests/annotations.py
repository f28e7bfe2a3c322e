"""The run-time check of annotations, as the tests have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jaxtyping

__all__ = ["check_annotations"]


def check_annotations(*packages: str) -> None:
    """From here on every call of these packages checks the shapes and dtypes that it states.

    Only functions inside functions are left alone: they are made anew in every call around them,
    and with each the code that checks it, at twenty times the cost of the call.
    """
    every = jaxtyping.jaxtyped

    def jaxtyped(**options: Any) -> Callable[[Any], Any]:
        checked = every(**options)

        def decorate(subject: Any) -> Any:
            inside = "<locals>" in getattr(subject, "__qualname__", "")
            return subject if inside else checked(subject)

        return decorate

    # What the hook writes into each module looks the decorator up by this name.
    jaxtyping.jaxtyped = jaxtyped
    jaxtyping.install_import_hook(list(packages), "beartype.beartype")
