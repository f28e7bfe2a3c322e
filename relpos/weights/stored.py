"""Settings out of JSON and out of a command line: places where any value of any type may stand."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from relpos.errors import SettingError
from relpos.schemes import Scheme, find_scheme
from relpos.schemes.base import restored
from relpos.settings import AttentionSettings

__all__ = ["make_scheme", "read_stored_settings"]

# The settings' own checks are written for people who call them from Python. Given any JSON at all
# they compare, add and look up what cannot be; whatever that raises, the value is what is wrong.
_IMPOSSIBLE = (TypeError, KeyError, AttributeError, ValueError, ArithmeticError)


def read_stored_settings(stored: Any) -> AttentionSettings:
    """The settings whose `to_dict` gave `stored`, types included.

    Raises:
        SettingError: It is anything else.
    """
    try:
        settings = AttentionSettings.from_dict(stored)
        settings.parameters()  # a size may be too large even to say how to start it
    except SettingError:
        raise
    except _IMPOSSIBLE as error:
        raise _unfit("stored settings", stored, error) from error
    return settings


def make_scheme(name: str, values: Mapping[str, Any]) -> Scheme:
    """A scheme from its name and settings by name; those that have a default may be left out.

    The name is `find_scheme`'s: small and capital letters are the same.

    Raises:
        SettingError: There is no such scheme, or it does not take these settings.

    Example:
        >>> make_scheme("T5", {"num_buckets": 8})
        T5(num_buckets=8, max_distance=128, bidirectional=True)
    """
    kind = find_scheme(name)
    fields = dataclasses.fields(kind)
    needed = {field.name for field in fields if field.default is dataclasses.MISSING}
    if not needed <= values.keys() <= {field.name for field in fields}:
        raise SettingError(
            f"{kind.name} takes its own settings, and those without a default must be given",
            got=", ".join(values) or "none",
            expected=", ".join(
                field.name + (" (needed)" if field.name in needed else "") for field in fields
            )
            or "none",
        )
    try:
        scheme: Scheme = restored(kind, values)
        return scheme
    except SettingError:
        raise
    except _IMPOSSIBLE as error:
        raise _unfit(f"the settings of {kind.name}", dict(values), error) from error


def _unfit(what: str, got: object, error: Exception) -> SettingError:
    return SettingError(
        f"{what} have the types that they are declared with",
        got=f"{got!r} ({type(error).__name__}: {error})",
        expected="values of those types",
    )
