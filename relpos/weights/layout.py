"""A layout: how somebody names and shapes the weights of a relative attention layer, as data."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from relpos.errors import WeightsError
from relpos.schemes import Scheme
from relpos.settings import AttentionSettings
from relpos.weights.neutral import Array
from relpos.weights.steps import Step

__all__ = ["KERNELS", "Drop", "Entry", "Layout"]

#: The parameters that every layer has, whatever its settings.
KERNELS = ("query.kernel", "key.kernel", "value.kernel", "out.kernel")


@dataclass(frozen=True)
class Entry:
    """One foreign array and the parameter it is.

    Attributes:
        source: The foreign name below the prefix, with `{layer}` for the layer; and with
            `{parameter}` where the layout calls a parameter as we do.
        target: Our parameter, for example `query.kernel`, or `{parameter}`.
        steps: From the foreign array to ours.
    """

    source: str
    target: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Drop:
    """Foreign arrays that are left behind on purpose.

    Attributes:
        source: Their name below the prefix: `{layer}` as in `Entry`, `*` for anything.
        reason: Why nothing is lost.
        check: For a buffer that repeats what the settings say: called with the array and the
            settings of its layer, it returns what is wrong with it, or None. A buffer that says
            something else belongs to another function, and is an error.
    """

    source: str
    reason: str
    check: Callable[[Array, AttentionSettings], str | None] | None = None


@dataclass(frozen=True)
class Layout:
    """Names, shapes and meaning of one family of checkpoints.

    Attributes:
        name: How `LAYOUTS` and the command line call it.
        description: One line for a person.
        entries: Every parameter it can hold, each once.
        drops: What stands beside them and is left behind on purpose.
        arguments: What the weights do not tell and the caller must: name -> why.
        separator: What joins the parts of a name; our own separator is the dot.
        numbered: `{layer}` is a whole number; otherwise any path, and may be empty.
        read_scheme: For a layout that always means the same scheme: that scheme, read from the
            shapes of one layer's parameters (by our names). None if the caller must name it.

    Raises:
        WeightsError: Two entries have the same source or the same target.
    """

    name: str
    description: str
    entries: tuple[Entry, ...]
    drops: tuple[Drop, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)
    separator: str = "."
    numbered: bool = False
    read_scheme: Callable[[Mapping[str, tuple[int, ...]]], Scheme] | None = None

    def __post_init__(self) -> None:
        for side in ("source", "target"):
            names = [getattr(entry, side) for entry in self.entries]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise WeightsError(
                    f"layout {self.name} names every {side} once",
                    got=f"twice: {', '.join(twice)}",
                    expected="one entry each",
                )

    def entry(self, parameter: str) -> Entry | None:
        """The entry of one of our parameters; None if the layout has no place for it."""
        named = {entry.target: entry for entry in self.entries}
        return named.get(parameter, named.get("{parameter}"))

    def source_name(self, entry: Entry, path: str, parameter: str) -> str:
        """The foreign name, below the prefix, of a layer's parameter."""
        name = entry.source
        if path == "":
            name = name.replace("{layer}" + self.separator, "")
        return name.format(
            layer=path.replace(".", self.separator),
            parameter=parameter.replace(".", self.separator),
        )

    def can_name(self, path: str) -> bool:
        """Whether a layer with this path has a name here."""
        return bool(re.fullmatch("[0-9]+", path)) if self.numbered else True

    def pattern(self, source: str, *, any_prefix: bool = False) -> re.Pattern[str]:
        """A source name, or that of a `Drop`, as a pattern for `path_of`.

        With `any_prefix` the group `prefix` takes what stands before it; a layout whose `{layer}`
        is any path has no use for a prefix, and there the group is empty.
        """
        separator = re.escape(self.separator)
        text = re.escape(source).replace(r"\*", ".*")
        if self.numbered:
            text = text.replace(r"\{layer\}", "(?P<layer>[0-9]+)")
        else:
            text = text.replace(r"\{layer\}" + separator, f"(?:(?P<layer>.+){separator})?")
        lead = "(?P<prefix>(?:.*[./])?)" if any_prefix and self.numbered else "(?P<prefix>)"
        return re.compile(lead + text)

    def path_of(self, match: re.Match[str]) -> str:
        """Our path of the layer that a name matching `pattern` belongs to."""
        return (match.groupdict().get("layer") or "").replace(self.separator, ".")
