"""A job: one case, run by one side in one mode and dtype, and judged against the oracle."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpos.oracle import Result
from relpos.parity import reference
from relpos.parity.cases import Case
from relpos.parity.comparison import Comparison, DistanceOf, compare
from relpos.parity.report import Check
from relpos.parity.roster import Row
from relpos.parity.sides import Answer, CannotRunError, Side
from relpos.parity.sides.base import gradient_of

__all__ = ["CHUNKS", "Job", "judge"]

#: How the seven tokens of the decoding case come: several, one, several.
CHUNKS = (3, 1, 3)


@dataclass(frozen=True)
class Job:
    """One call to one side.

    Attributes:
        row: The roster's row.
        call: `attention`, `relative_scores`, `layer` or `decode`.
        case: The inputs.
        dtype: The dtype under test.
        framework: `torch` or `jax`.
        kind: Which interface: the framework, or `nnx` and `linen` for layers of Flax.
        mode: How a function is run, for example `eager` or `jit`; for layers the call's name.
        device: Where; `auto` is the framework's best.
    """

    row: Row
    call: str
    case: Case
    dtype: str
    framework: str
    kind: str
    mode: str
    device: str = "auto"

    @property
    def side(self) -> str:
        """Who is to blame if the answer is wrong."""
        return f"{self.kind} {self.mode}" + ("" if self.device == "auto" else f" {self.device}")

    @property
    def name(self) -> str:
        """Row, call and case."""
        call = "" if self.mode == self.call else f" {self.call}"
        return f"{self.row.name}:{call} {self.case.name}"

    @property
    def command(self) -> str:
        """One line that repeats the job alone."""
        return f"{self.command_of_both} --only {self.framework} --mode {self.mode}"

    @property
    def command_of_both(self) -> str:
        """One line that repeats the case in both frameworks and every mode."""
        words = ["relpos", "parity", "--scheme", self.row.name, "--case", self.case.name]
        words += ["--dtype", self.dtype]
        if self.device != "auto":
            words += ["--device", self.device]
        return shlex.join(words)

    def reference(self) -> Result:
        """What the oracle says."""
        return reference.result(self.call, self.case, self.dtype)

    def answer(self, side: Side) -> Answer:
        """What the side says."""
        if self.call == "attention":
            return side.attention(self.case, self.dtype, self.mode)
        if self.call == "relative_scores":
            return side.relative_scores(self.case, self.dtype, self.mode)
        if self.call == "layer":
            return side.layer(self.case, self.dtype, self.kind)
        return side.decode(self.case, self.dtype, self.kind, CHUNKS)

    def run(self, side: Side) -> tuple[Check, Answer]:
        """Ask the side and judge what it says; no answer is an empty one."""
        known: dict[str, Any] = {
            "subject": self.row.scheme.name,
            "case": self.name,
            "side": self.side,
            "dtype": self.dtype,
            "command": self.command,
        }
        expected = self.reference()
        try:
            answer = self.answer(side)
        except CannotRunError as reason:
            return Check(**known, doubt=str(reason)), {}
        except Exception as error:  # whatever a side raises is its answer, and the run goes on
            said = " ".join(str(error).split())[:300]
            return Check(**known, problem=f"raised {type(error).__name__}: {said}"), {}
        return Check(**known, comparisons=judge(self, expected, answer)), answer


def judge(job: Job, expected: Result, answer: Answer) -> tuple[Comparison, ...]:
    """Every array of an answer against the oracle's, gradients where the job has them."""
    # Position scores are not rounded to half precision: they are added before the softmax.
    widened = job.call == "relative_scores" and job.dtype in ("bfloat16", "float16")
    output = compare(
        expected.output,
        answer["output"],
        dtype="float32" if widened else job.dtype,
        distance_of=_distance_of_pair(job) if job.call == "relative_scores" else None,
    )
    if job.call == "decode":
        return (output,)
    gradients = [
        compare(
            estimate,
            answer[gradient_of(name)],
            what=gradient_of(name),
            dtype=job.dtype,
            distance_of=_distance_of_row(job, name),
        )
        for name, estimate in expected.gradients.items()
    ]
    return (output, *gradients)


def _distance_of_pair(job: Job) -> DistanceOf:
    """For the scores [h, i, j]."""
    inputs = job.case.head_inputs(job.dtype)
    Lq, Lk = job.case.Lq, job.case.Lk

    def place(positions: NDArray[np.int32] | None, n: int, in_order: int) -> int:
        return in_order if positions is None or positions.ndim == 3 else int(positions[n])

    def distance_of(index: tuple[int, ...]) -> int:
        _, i, j = index
        return place(inputs.key_positions, j, j) - place(inputs.query_positions, i, Lk - Lq + i)

    return distance_of


def _distance_of_row(job: Job, name: str) -> DistanceOf | None:
    """For a table with one row per distance."""
    axes = {p.name: p.axes for p in job.case.parameters()}.get(name, ())
    if "distance" not in axes:
        return None
    axis, first = axes.index("distance"), -int(getattr(job.row.scheme, "left", 0))
    return lambda index: first + index[axis]
