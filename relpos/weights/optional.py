"""Packages that only some functions need, imported when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["need"]


def need(package: str, extra: str) -> Any:
    """Import `package`, or say which extra of relpos brings it.

    Raises:
        ModuleNotFoundError: The package is not installed.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        root = package.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != root:
            raise  # installed, but something that it needs itself is not
        raise ModuleNotFoundError(
            f"this needs the package {root}, which is not installed. Install it with: "
            f"pip install 'relpos[{extra}]'",
            name=root,
        ) from error
