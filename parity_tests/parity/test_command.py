"""Runs as a whole: requests, the command, its exit codes, and what it says when it cannot run."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console
from typer.testing import CliRunner

from relpos.cli.app import build_app
from relpos.errors import RelposError, SettingError
from relpos.parity import Check, Report, Verdict, reference
from relpos.parity.jobs import Job
from relpos.parity.mutations import mutated
from relpos.parity.roster import FIRST_ROWS, ROSTER
from relpos.parity.run import ALL_MODES, DTYPES, Request, Runner
from relpos.parity.sides import MODES, Side, base
from relpos.parity.terminal import show
from relpos.schemes import SCHEMES

ONE_CASE = ["--scheme", "Shaw keys", "--case", "cross", "--dtype", "float32"]
ONE_CASE += ["--only", "torch", "--mode", "eager"]


def relpos(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(build_app(), ["parity", *words])
    return result.exit_code, result.output


def test_a_right_twin_passes(tmp_path: Path) -> None:
    files = {"--json": tmp_path / "report.json", "--junit": tmp_path / "report.xml"}
    code, text = relpos(*ONE_CASE, *(str(word) for pair in files.items() for word in pair))
    assert code == 0
    assert "PASS" in text
    data = json.loads(files["--json"].read_text())
    assert data["verdict"] == "PASS"
    assert data["entries"] > 0
    assert data["environment"]["torch"]["float32_matmul_precision"] == "highest"
    assert ElementTree.parse(files["--junit"]).getroot().get("failures") == "0"


def test_a_wrong_twin_fails_and_the_command_repeats_it() -> None:
    with mutated("i - j for j - i", "torch"):
        code, text = relpos(*ONE_CASE)
        assert code == 1
        assert "Blame: Shaw: torch eager wrong" in text
        line = next(line for line in text.splitlines() if line.strip().startswith("relpos parity"))
        assert relpos(*shlex.split(line)[2:])[0] == 1
    assert relpos(*shlex.split(line)[2:])[0] == 0


def test_torch_compile_in_a_process_of_its_own(tmp_path: Path) -> None:
    # The run-time check of annotations, on in this process, cannot be compiled.
    path = tmp_path / "report.json"
    command = [sys.executable, "-m", "relpos", "parity", "--mode", "compile", "--scheme", "Shaw"]
    done = subprocess.run(
        [*command, "--json", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    compiled = [r for r in json.loads(path.read_text())["results"] if "compile" in r["side"]]
    assert compiled
    assert all(result["verdict"] == "PASS" for result in compiled)


def a_job(mode: str) -> Job:
    request = Request(("Shaw",), ("float32",), "torch", (mode,), ("masked",))
    return request.jobs()[0]


def test_no_compiler_is_inconclusive(
    sides: dict[str, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    check, answer = a_job("compile").run(sides["torch"])
    assert check.verdict is Verdict.INCONCLUSIVE
    assert "C++ compiler" in check.finding
    assert answer == {}
    assert Report([check]).verdict.exit_code == 2


def test_a_side_that_raises_fails_and_is_quoted(
    sides: dict[str, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise ArithmeticError("out of\nluck")

    monkeypatch.setattr(sides["torch"], "attention", broken)
    check, _ = a_job("eager").run(sides["torch"])
    assert check.verdict is Verdict.FAIL
    assert check.finding == "raised ArithmeticError: out of luck"


def test_a_missing_framework_is_an_error_unless_the_other_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base, "installed", lambda framework: framework == "torch")
    with pytest.raises(RelposError, match="--only"):
        Runner(Request())
    Runner(Request(only="torch"))


def test_a_missing_device_is_an_error() -> None:
    for only in ("torch", "jax"):
        with pytest.raises(RelposError, match="a device that it has"):
            Runner(Request(only=only, device="abacus"))


@pytest.mark.parametrize(
    "request_",
    [
        {"schemes": ("Shaw", "Rotary")},
        {"dtypes": ("float8",)},
        {"modes": ("jitt",)},
        {"cases": ("crossed",)},
        {"only": "numpy"},
    ],
    ids=lambda given: next(iter(given)),
)
def test_unknown_names_are_refused(request_: dict[str, object]) -> None:
    with pytest.raises(SettingError, match="must be known by name"):
        Request(**request_)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "asked",
    [
        {"schemes": ("RoPE",), "modes": ("compile",), "dtypes": ("bfloat16",)},
        {"schemes": ("Windowed keys",), "modes": ("jit-vmap",)},
        {"schemes": ("T5 causal",), "modes": ("jit-vmap",), "dtypes": ("float16",)},
    ],
)
def test_what_is_asked_for_by_name_is_never_left_out(asked: dict[str, tuple[str, ...]]) -> None:
    jobs = Request(**asked).jobs()  # type: ignore[arg-type]
    assert jobs
    assert all(job.mode in asked["modes"] for job in jobs)
    assert all(job.dtype in asked["dtypes"] for job in jobs if "dtypes" in asked)


def test_a_mode_that_the_framework_has_not_is_refused() -> None:
    with pytest.raises(SettingError, match="torch must have the mode"):
        Request(only="torch", modes=("jit",))


def test_a_run_without_any_case_fails() -> None:
    report = Runner(Request(("Shaw full",), only="torch", cases=("past",))).run()
    assert report.verdict is Verdict.FAIL
    assert "no case fits" in report.checks[0].finding


def test_an_ordinary_run_meets_every_row_in_both_twins_and_every_kind_in_every_mode() -> None:
    jobs = Request().jobs()

    def met(framework: str, rows: set[str], *names: str) -> set[Any]:
        own = [job for job in jobs if job.framework == framework and job.row.name in rows]
        return {tuple(getattr(job, name) for name in names) for job in own}

    for row in ROSTER.values():
        explicit, default = ("packed", True), ("cross" if row.past is None else "past", False)
        torch_calls, jax_calls = (
            {
                (case.name, case.positions == "packed")
                for mode, case in met(framework, {row.name}, "mode", "case")
                if mode == wanted
            }
            for framework, wanted in (("torch", "eager"), ("jax", "jit"))
        )
        assert torch_calls == {(case.name, case.positions == "packed") for case in row.cases}
        assert {explicit, *([default] if row.representative else [])} <= jax_calls, row.name
        if row is FIRST_ROWS[row.scheme.name]:
            assert ("layer",) in met("jax", {row.name}, "mode")  # at the default positions
        assert met("torch", {row.name}, "dtype") == {(dtype,) for dtype in DTYPES}, row.name
    for scheme in SCHEMES:
        own = {row.name for row in ROSTER.values() if row.scheme.name == scheme}
        assert {("torch", "layer"), ("torch", "decode")} <= met("torch", own, "kind", "call")
        assert ("nnx", "layer") in met("jax", own, "kind", "call")
    for row in ROSTER.values():
        if row.representative:
            for framework in ("torch", "jax"):
                modes = {mode for (mode,) in met(framework, {row.name}, "mode")}
                some = {"eager", "vmap"} if framework == "jax" else set()
                some |= set(row.exempt) & set(MODES[framework])
                assert modes | some == {*MODES[framework], "layer", "decode"}, row.name
            assert met("jax", {row.name}, "dtype") == {(dtype,) for dtype in DTYPES}, row.name
    assert {job.mode for job in jobs} == set(ALL_MODES)
    assert len(Request(thorough=True).jobs()) > 4 * len(jobs)
    names = [(job.side, job.name, job.dtype) for job in Request(thorough=True).jobs()]
    assert len(names) == len(set(names))


def test_frameworks_are_compared_with_one_another_once_a_case() -> None:
    report = Runner(Request(("NoPosition",), ("float32",), modes=("eager", "jit"))).run()
    pairs = [check for check in report.checks if " against " in check.side]
    assert pairs
    assert len({check.case for check in pairs}) == len(pairs)
    assert report.verdict is Verdict.PASS
    assert report.details["coverage"]["NoPosition"]["distances"][2] > 10


def test_an_oracle_in_a_process_beside_says_the_same() -> None:
    request = Request(("NoPosition",), ("float32",), "torch", ("eager",), ("cross", "masked"))
    alone = Runner(request).run()
    reference.result.cache_clear()
    beside = Runner(request).run(oracle_beside=True)
    assert [check.comparisons for check in beside.checks] == [c.comparisons for c in alone.checks]
    assert all(check.verdict is Verdict.PASS for check in beside.checks)


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_fits_the_terminal(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    report = Runner(Request(("Shaw keys",), cases=("cross",), only="torch", modes=("eager",))).run()
    report.add(Check("RoPE", "RoPE interleaved partial: packed", "torch eager", "bfloat16"))
    show(report, Console(width=width, highlight=False))
    text = capsys.readouterr().out
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert "nothing was compared" in text


def test_honest_runs_are_neither_far_below_nor_near_their_budget(sides: dict[str, Side]) -> None:
    # A budget that nothing comes near would let faults through; one that honest runs touch would
    # fail them on another machine.
    for dtype in ("float64", "float32", "bfloat16"):
        request = Request(("Shaw", "T5", "RoPE half"), (dtype,), "torch", ("eager",), ("masked",))
        checks = [job.run(sides["torch"])[0] for job in request.jobs()]
        worst = max(check.worst.ratio for check in checks if check.worst is not None)
        assert 0.1 < worst < 0.8, dtype


def test_a_report_that_cannot_be_written_is_shown_first_and_then_an_error(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "relpos", "parity", *ONE_CASE]
    result = subprocess.run(
        [*words, "--json", str(tmp_path / "nowhere" / "report.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "PASS" in result.stdout
    assert "a report must be written where a file can be" in result.stderr
    assert "Traceback" not in result.stderr
