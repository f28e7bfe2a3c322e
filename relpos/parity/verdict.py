"""The three answers of a parity check, and how several of them become one."""

from __future__ import annotations

import enum
from collections.abc import Iterable

__all__ = ["Verdict"]


class Verdict(enum.Enum):
    """PASS, FAIL or INCONCLUSIVE; nothing that was not compared can be a PASS.

    Example:
        >>> Verdict.of([Verdict.PASS, Verdict.INCONCLUSIVE])
        <Verdict.INCONCLUSIVE: 'INCONCLUSIVE'>
        >>> Verdict.of([])
        <Verdict.FAIL: 'FAIL'>
    """

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"

    @property
    def exit_code(self) -> int:
        """0 for PASS, 1 for FAIL, 2 for INCONCLUSIVE."""
        return {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.INCONCLUSIVE: 2}[self]

    @staticmethod
    def of(verdicts: Iterable[Verdict]) -> Verdict:
        """One verdict over many: the worst that occurs, and FAIL where there are none."""
        found = set(verdicts)
        for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS):
            if verdict in found:
                return verdict
        return Verdict.FAIL
