"""The record of one conversion: every array, where it came from, what was done, where it went."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from relpos.weights.neutral import Array

__all__ = ["Audit", "AuditRow", "fingerprint"]


def fingerprint(array: Array) -> str:
    """SHA-256 of the bytes of an array, first axis slowest."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


@dataclass(frozen=True)
class AuditRow:
    """What became of one array.

    Attributes:
        source: Its full name where it came from.
        shape: Its shape there.
        dtype: Its dtype, there and after.
        sha256: `fingerprint` of its bytes there.
        use: `used`, or `dropped` on purpose.
        steps: What was done to it, in order; for a dropped array, why.
        target: Its name where it went.
        target_shape: Its shape there.
    """

    source: str
    shape: tuple[int, ...]
    dtype: str
    sha256: str
    use: Literal["used", "dropped"]
    steps: tuple[str, ...]
    target: str | None = None
    target_shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Audit:
    """The whole record.

    Attributes:
        layout: Name of the foreign layout.
        direction: `to neutral` or `from neutral`.
        prefix: What the foreign names of the converted part begin with.
        rows: One for each array of that part.
        outside: Names in the source that do not begin with the prefix; not looked at.
    """

    layout: str
    direction: Literal["to neutral", "from neutral"]
    prefix: str
    rows: tuple[AuditRow, ...]
    outside: tuple[str, ...] = ()

    def count(self, use: str) -> int:
        """How many arrays were `used` or `dropped`."""
        return sum(row.use == use for row in self.rows)

    def __str__(self) -> str:
        return (
            f"{self.layout} {self.direction}: {self.count('used')} used, "
            f"{self.count('dropped')} dropped on purpose, {len(self.outside)} outside "
            f"the prefix {self.prefix!r}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return dataclasses.asdict(self)
