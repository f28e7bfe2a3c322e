"""Everything that is wrong with a set of weights, collected before anything is raised."""

from __future__ import annotations

from relpos.errors import WeightsError

__all__ = ["Problems"]


class Problems:
    """Faults by kind (`missing`, `unexpected`, `misshapen`, ...), raised together.

    A list that stops at its first fault makes a person repair, run, repair, run; so every check of
    names and shapes in `relpos.weights` ends in one error that holds them all.

    Example:
        >>> problems = Problems()
        >>> problems.add("missing", "query.kernel")
        >>> problems.add("missing", "key.kernel")
        >>> str(problems)
        'missing: query.kernel, key.kernel'
    """

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}

    def add(self, kind: str, what: str) -> None:
        """Note one fault."""
        self._found.setdefault(kind, []).append(what)

    def __bool__(self) -> bool:
        return bool(self._found)

    def __str__(self) -> str:
        return "; ".join(f"{kind}: {', '.join(what)}" for kind, what in self._found.items())

    def check(self, rule: str, *, expected: str) -> None:
        """Raise one `WeightsError` with every fault noted so far, if there is any."""
        if self:
            raise WeightsError(rule, got=str(self), expected=expected)
