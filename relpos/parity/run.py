"""A parity run: what is asked for becomes jobs, the jobs become a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

from relpos.errors import SettingError
from relpos.parity import reference
from relpos.parity.comparison import compare_pair
from relpos.parity.coverage import coverage
from relpos.parity.integers import check_buckets, check_masks
from relpos.parity.jobs import Job
from relpos.parity.report import Check, Report
from relpos.parity.roster import FIRST_ROWS, ROSTER, Row
from relpos.parity.sides import MODES, Answer, Side, side_of
from relpos.parity.sides.base import gradient_of
from relpos.schemes import T5

__all__ = ["ALL_MODES", "DTYPES", "Request", "Runner"]

#: The dtypes of a run unless some are named.
DTYPES = ("float64", "float32", "bfloat16")

#: Every mode by name: how functions are run, then the layers' calls.
ALL_MODES = ("eager", "compile", "jit", "vmap", "jit-vmap", "blockwise", "layer", "decode")

_LAYERS = {"torch": ("torch",), "jax": ("nnx", "linen")}

#: Row, call, case and dtype.
Key = tuple[str, str, str, str]
#: Told after each step: how many are done, of how many, and what was done.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Request:
    """What a run is asked for; empty means everything.

    Attributes:
        schemes: Names of schemes or of the roster's rows, in small or capital letters.
        dtypes: Of float64, float32, bfloat16, float16.
        only: `torch` or `jax`; None is both.
        modes: Of `ALL_MODES`.
        cases: Names of cases; what is not a case (coverage, integers) is then left out.
        device: Where both frameworks run; `auto` is an accelerator where a framework has one.
        mutations: Run the mutations too.
        thorough: Run every case in every dtype and mode, which takes hours.
    """

    schemes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    only: Literal["torch", "jax"] | None = None
    modes: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    device: str = "auto"
    mutations: bool = False
    thorough: bool = False

    def __post_init__(self) -> None:
        names = {*ROSTER, *(row.scheme.name for row in ROSTER.values())}
        # As people type them: small and capital letters are the same.
        spelled = {name.lower(): name for name in names}
        typed = tuple(spelled.get(name.lower(), name) for name in self.schemes)
        object.__setattr__(self, "schemes", typed)
        known_cases = {
            case.name
            for row in ROSTER.values()
            for case in (*row.cases, *row.layer_cases, row.decode_case)
        }
        for what, given, known in (
            ("a scheme or row of the roster", self.schemes, names),
            ("a dtype", self.dtypes, {*DTYPES, "float16"}),
            ("a mode", self.modes, set(ALL_MODES)),
            ("a case", self.cases, known_cases),
            ("a framework", () if self.only is None else (self.only,), set(MODES)),
        ):
            for name in given:
                if name not in known:
                    raise SettingError(
                        f"{what} must be known by name", got=repr(name), expected=sorted(known)
                    )
        if self.only is not None:
            own = {*MODES[self.only], "layer", "decode"}
            for name in self.modes:
                if name not in own:
                    raise SettingError(
                        f"{self.only} must have the mode", got=repr(name), expected=sorted(own)
                    )

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The frameworks asked for."""
        return tuple(MODES) if self.only is None else (self.only,)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of the roster asked for."""
        return tuple(
            row
            for row in ROSTER.values()
            if not self.schemes or {row.name, row.scheme.name} & set(self.schemes)
        )

    def jobs(self) -> list[Job]:
        """Every job of the run, those of one case together so that the oracle runs once."""
        jobs = []
        for row in self.rows:
            for dtype in self.dtypes or DTYPES:
                for case in row.cases:
                    jobs += [
                        Job(row, call, case, dtype, framework, framework, mode, self.device)
                        for call in ("attention", "relative_scores")
                        for framework in self.frameworks
                        for mode in MODES[framework]
                        if mode != "blockwise" or (call == "attention" and mode not in row.exempt)
                    ]
                for call, cases in (("layer", row.layer_cases), ("decode", (row.decode_case,))):
                    jobs += [
                        Job(row, call, case, dtype, framework, kind, call, self.device)
                        for case in cases
                        for framework in self.frameworks
                        for kind in _LAYERS[framework]
                    ]
        fitting = [
            job
            for job in jobs
            if (not self.modes or job.mode in self.modes)
            and (not self.cases or job.case.name in self.cases)
        ]
        if self.thorough or self.cases:
            return fitting
        chosen = [job for job in fitting if _is_worth_its_time(job)]
        # What is asked for by name is never left out: one case stands for it.
        missing = {self._asked(job): job for job in reversed(fitting)}
        for job in chosen:
            missing.pop(self._asked(job), None)
        return chosen + list(missing.values())

    def _asked(self, job: Job) -> tuple[str, ...]:
        """What a job answers of that which the request names."""
        row, scheme = job.row.name, job.row.scheme.name
        return (
            row if row in self.schemes else scheme,
            job.framework,
            job.mode if self.modes else "",
            job.dtype if self.dtypes else "",
        )


#: Without jit, JAX compiles every operation by itself, half a minute for some rows: a table of
#: vectors, a bias and a rotation stand for all. What they run is what jit compiles as a whole.
_OP_BY_OP = ("Shaw", "T5", "RoPE half")


def _is_worth_its_time(job: Job) -> bool:
    """Whether an ordinary run has the job; the others are for `thorough` and for runs by case.

    PyTorch eager takes milliseconds, so every row meets it in every case and in every dtype, as
    often as the oracle allows, which takes a tenth of a second for each of the two. What
    compiles takes about a second in JAX and ten in torch.compile: every row is compiled by JAX
    once for explicit positions, and each scheme's first row for the default ones too, in a layer.
    All else is about kernels and layers, which know nothing of
    schemes: the representative rows have between them every kind of term.
    """
    case, dtype, mode = job.case.name, job.dtype, job.mode
    single, typical = dtype == "float32", job.row.representative
    first = job.row is FIRST_ROWS[job.row.scheme.name]
    default = "cross" if job.row.past is None else "past"
    if job.framework == "torch":
        if mode == "compile":
            return typical and single and case == "masked" and job.call == "attention"
        if mode == "blockwise":
            return single
        if job.call == "relative_scores":
            return single and case == "packed"
        if mode == "vmap":
            return single and case in ("masked", "packed")
        if job.call != "attention":
            return (single and first) or (typical and (single or case == "layer-self"))
        return single or (case, dtype) in (("packed", "float64"), ("masked", "bfloat16"))
    if job.call == "attention":
        if mode == "jit":
            return (case, dtype) == ("packed", "float64") or (
                typical and (case, dtype) in ((default, "float32"), ("packed", "bfloat16"))
            )
        if mode == "jit-vmap":
            return typical and single and case == "masked"
        if mode == "blockwise":
            return typical and single and case in ("masked", "packed")
        return job.row.name in _OP_BY_OP and single and case == "cross"
    if job.call == "relative_scores":
        return typical and single and case == "masked" and mode == "jit-vmap"
    if job.kind == "linen":
        return typical and single and case == "layer-self"
    return single and ((first and case == "layer-self") or (typical and case != "layer-cross"))


class Runner:
    """Runs a request.

    Args:
        request: What is asked for.

    Raises:
        RelposError: A framework that is asked for is missing, or has no such device.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.sides: dict[str, Side] = {
            framework: side_of(framework, request.device) for framework in request.frameworks
        }
        self._first_answers: dict[Key, tuple[Job, Answer]] = {}
        self._paired: set[Key] = set()

    def run(self, progress: Progress | None = None, *, oracle_beside: bool = False) -> Report:
        """Make every check of the request.

        Args:
            progress: Told after each step.
            oracle_beside: Give the oracle a process of its own, see `reference.ahead`.
        """
        started = time.perf_counter()
        report = Report()
        jobs = self.request.jobs()
        steps: list[tuple[str, Callable[[], Sequence[Check]]]] = []
        for job in jobs:
            steps.append((f"{job.side}: {job.name}", self._answer(job)))
        if not self.request.cases:
            for row in self.request.rows:
                steps.append((f"{row.name}: integers", self._whole_numbers(row, report)))
        if self.request.mutations:
            from relpos.parity.mutations import MUTATIONS, run_mutation

            steps += [
                (f"mutation {name} in {framework}", _later(run_mutation, name, framework, side))
                for name in MUTATIONS
                for framework, side in self.sides.items()
            ]
        if not jobs:
            report.add(
                Check("request", "", "relpos", problem="no case fits all that was asked for")
            )
        questions = [(job.call, job.case, job.dtype) for job in jobs]
        with reference.ahead(questions) if oracle_beside else nullcontext():
            for number, (name, step) in enumerate(steps):
                report.add(step())
                if progress is not None:
                    progress(number + 1, len(steps), name)
        for framework, side in self.sides.items():
            report.environment[framework] = side.environment()
        report.seconds = time.perf_counter() - started
        return report

    def _answer(self, job: Job) -> Callable[[], Sequence[Check]]:
        def step() -> Sequence[Check]:
            check, answer = job.run(self.sides[job.framework])
            if not answer:
                return [check]
            key = (job.row.name, job.call, job.case.name, job.dtype)
            # Each case is compared once between the frameworks: their first sides to answer it.
            first = self._first_answers.setdefault(key, (job, answer))
            if first[0].framework == job.framework or key in self._paired:
                return [check]
            self._paired.add(key)
            return [check, _pair(*first, job, answer)]

        return step

    def _whole_numbers(self, row: Row, report: Report) -> Callable[[], Sequence[Check]]:
        def step() -> Sequence[Check]:
            dtype = (self.request.dtypes or DTYPES)[0]
            check, about = coverage(
                row, [(case.H, reference.result("attention", case, dtype)) for case in row.cases]
            )
            report.details.setdefault("coverage", {})[row.name] = about
            checks = [check]
            if isinstance(row.scheme, T5):
                checks.append(check_buckets(row))
            checks += [check_masks(row, side, name) for name, side in self.sides.items()]
            return checks

        return step


def _pair(first: Job, answer: Answer, second: Job, other: Answer) -> Check:
    """The two frameworks against one another: each may use its own budget."""
    expected = first.reference()
    estimates = {"output": expected.output}
    if first.call != "decode":
        estimates |= {gradient_of(name): e for name, e in expected.gradients.items()}
    return Check(
        first.row.scheme.name,
        first.name,
        f"{first.side} against {second.side}",
        first.dtype,
        tuple(
            compare_pair(answer[what], other[what], estimate, what=what)
            for what, estimate in estimates.items()
        ),
        command=second.command_of_both,
    )


def _later(function: Callable[..., Check], *arguments: object) -> Callable[[], Sequence[Check]]:
    return lambda: [function(*arguments)]
