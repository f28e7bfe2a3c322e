"""What a parity run found: checks, each a side's answer to one case, and what follows from all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from relpos.parity.comparison import Comparison
from relpos.parity.verdict import Verdict

__all__ = ["Check", "Report"]


@dataclass(frozen=True)
class Check:
    """The answer of one side to one case.

    Attributes:
        subject: What is checked, one line of the table: a scheme, a model's layer, ...
        case: Which call with which input.
        side: Who answered, to be blamed if the answer is wrong: `torch eager`, `onnxruntime`, ...
        dtype: The dtype under test; empty where there is none.
        comparisons: Every array that was compared.
        problem: Why the side gave no answer (a failure), if it gave none.
        doubt: Why no verdict can be given (inconclusive), if none can.
        command: One line that repeats this check alone.
        note: What a reader of a PASS should know.
    """

    subject: str
    case: str
    side: str
    dtype: str = ""
    comparisons: tuple[Comparison, ...] = ()
    problem: str | None = None
    doubt: str | None = None
    command: str | None = None
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        """FAIL for a problem, INCONCLUSIVE for a doubt, else what the comparisons say."""
        if self.problem is not None:
            return Verdict.FAIL
        verdicts = [comparison.verdict for comparison in self.comparisons]
        if self.doubt is not None and Verdict.FAIL not in verdicts:
            return Verdict.INCONCLUSIVE
        return Verdict.of(verdicts)

    @property
    def worst(self) -> Comparison | None:
        """The comparison furthest outside its budget; one that could not be made comes first."""
        return max(self.comparisons, key=lambda c: (c.problem is not None, c.ratio), default=None)

    @property
    def name(self) -> str:
        """Subject, case, side and dtype in one line."""
        return " / ".join(part for part in (self.subject, self.case, self.side, self.dtype) if part)

    @property
    def finding(self) -> str:
        """What is wrong, in one sentence; empty for a PASS."""
        if self.verdict is Verdict.PASS:
            return ""
        if self.problem is not None:
            return self.problem
        if self.verdict is Verdict.INCONCLUSIVE:
            return self.doubt or ""
        return "nothing was compared" if self.worst is None else str(self.worst)

    def to_dict(self) -> dict[str, Any]:
        """The check as plain JSON types."""
        return {
            "subject": self.subject,
            "case": self.case,
            "side": self.side,
            "dtype": self.dtype,
            "verdict": self.verdict.value,
            "finding": self.finding,
            "command": self.command,
            "note": self.note,
            "comparisons": [comparison.to_dict() for comparison in self.comparisons],
        }


@dataclass
class Report:
    """Every check of a run.

    Attributes:
        checks: The checks, in the order they were made.
        environment: What the run ran on: versions, devices, precision flags.
        details: What else there is to tell, by topic, in plain JSON types.
        seconds: How long the run took.

    Example:
        >>> report = Report()
        >>> report.verdict.value
        'FAIL'
    """

    checks: list[Check] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, checks: Check | Iterable[Check]) -> None:
        """Add one check or several."""
        self.checks.extend([checks] if isinstance(checks, Check) else checks)

    @property
    def comparisons(self) -> int:
        """How many arrays were compared."""
        return sum(len(check.comparisons) for check in self.checks)

    @property
    def entries(self) -> int:
        """How many numbers were compared."""
        return sum(c.count for check in self.checks for c in check.comparisons)

    @property
    def verdict(self) -> Verdict:
        """One verdict over all checks; a run that compared nothing is a FAIL, or INCONCLUSIVE
        where every check says why."""
        return Verdict.of(check.verdict for check in self.checks)

    def of(self, verdict: Verdict) -> list[Check]:
        """The checks with this verdict."""
        return [check for check in self.checks if check.verdict is verdict]

    def worst_ratio(self, *, gradients: bool | None = None, **where: str) -> float | None:
        """The worst ratio among the checks whose attributes equal `where`; None if there are none.

        Args:
            gradients: True looks at gradients alone, False at everything else, None at all.
            where: Any of subject, case, side, dtype.
        """
        found = [
            math.inf if comparison.problem is not None else comparison.ratio
            for check in self.checks
            if all(getattr(check, name) == value for name, value in where.items())
            for comparison in check.comparisons
            if gradients is None or comparison.is_gradient == gradients
        ]
        return max(found, default=None)

    def blame(self) -> list[str]:
        """One sentence per subject that failed: which sides are wrong, and which are not."""
        sentences = []
        for subject in dict.fromkeys(check.subject for check in self.of(Verdict.FAIL)):
            of_subject = [check for check in self.checks if check.subject == subject]
            sides = list(dict.fromkeys(check.side for check in of_subject))
            wrong = [
                side
                for side in sides
                if any(c.side == side and c.verdict is Verdict.FAIL for c in of_subject)
            ]
            right = [side for side in sides if side not in wrong]
            if right:
                sentence = f"{', '.join(wrong)} wrong; {', '.join(right)} right"
            elif len(wrong) == 1:
                sentence = f"{wrong[0]} wrong"
            else:
                sentence = f"every side wrong ({', '.join(wrong)}): suspect what they share"
            sentences.append(f"{subject}: {sentence}")
        return sentences

    def to_dict(self) -> dict[str, Any]:
        """The report as plain types; floats may be infinite (see `relpos.parity.files`)."""
        counts: Mapping[str, int] = {v.value: len(self.of(v)) for v in Verdict}
        return {
            "verdict": self.verdict.value,
            "checks": counts,
            "comparisons": self.comparisons,
            "entries": self.entries,
            "seconds": self.seconds,
            "environment": self.environment,
            "details": self.details,
            "results": [check.to_dict() for check in self.checks],
        }
