"""Errors that say the rule, what came and what was expected."""

from __future__ import annotations

__all__ = ["DistanceError", "RelposError", "SettingError", "ShapeError", "WeightsError"]


class RelposError(ValueError):
    """Base of every error that relpos raises on purpose.

    Args:
        rule: The rule that was broken, as a sentence without its full stop.
        got: What came.
        expected: What would have been right, or what to do.

    Example:
        >>> raise RelposError("head_dim must be even", got=7, expected="an even number")
        Traceback (most recent call last):
            ...
        relpos.errors.RelposError: head_dim must be even. Got 7; expected an even number.
    """

    def __init__(self, rule: str, *, got: object, expected: object) -> None:
        self.rule, self.got, self.expected = rule, got, expected
        super().__init__(f"{rule}. Got {got}; expected {expected}.")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.rule, self.got, self.expected)


def _rebuild(kind: type[RelposError], rule: str, got: object, expected: object) -> RelposError:
    return kind(rule, got=got, expected=expected)


class SettingError(RelposError):
    """A setting of a scheme or a layer is impossible, alone or beside another."""


class ShapeError(RelposError):
    """An array has a shape or dtype that the call cannot use."""


class DistanceError(RelposError, IndexError):
    """A distance lies beyond a table that may not clip, or beyond what can be computed."""


class WeightsError(RelposError):
    """Weights do not fit: missing, unexpected, duplicate or misshapen entries."""
