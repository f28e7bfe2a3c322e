"""Checks, reports and verdicts; the files they are written to."""

from __future__ import annotations

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from relpos.parity import Check, Comparison, Estimate, Report, Verdict, compare
from relpos.parity.files import to_json, to_junit, write_whole

GOOD = Comparison("output", count=5, ratio=0.5, index=(0,))
BAD = Comparison("gradient of q", count=7, ratio=3.0, index=(1,), got=1.0, expected=2.0, budget=0.3)


def check(side: str = "torch eager", *comparisons: Comparison, subject: str = "Shaw") -> Check:
    return Check(subject, "cross", side, "float32", comparisons, command="relpos parity --case x")


def test_a_run_that_checked_nothing_fails() -> None:
    assert Report().verdict is Verdict.FAIL
    assert check().verdict is Verdict.FAIL
    assert check().finding == "nothing was compared"
    assert Report([check()]).verdict is Verdict.FAIL


def test_a_failure_outweighs_a_doubt_and_a_doubt_a_pass() -> None:
    good, bad = check("torch eager", GOOD), check("jax jit", GOOD, BAD)
    doubtful = Check("Shaw", "cross", "torch compile", doubt="no compiler")
    assert Report([good]).verdict is Verdict.PASS
    assert Report([good, doubtful]).verdict is Verdict.INCONCLUSIVE
    assert Report([good, doubtful, bad]).verdict is Verdict.FAIL
    assert [v.exit_code for v in Verdict] == [0, 1, 2]


def test_a_doubt_does_not_hide_a_wrong_number() -> None:
    assert Check("a", "b", "c", comparisons=(BAD,), doubt="why not").verdict is Verdict.FAIL


def test_a_problem_is_a_failure_whatever_was_compared() -> None:
    assert Check("a", "b", "c", comparisons=(GOOD,), problem="raised").verdict is Verdict.FAIL


def test_counts_and_worst_ratios() -> None:
    report = Report([check("torch eager", GOOD, BAD), check("jax jit", GOOD)])
    assert report.comparisons == 3
    assert report.entries == 17
    assert report.worst_ratio(side="torch eager") == 3.0
    assert report.worst_ratio(side="torch eager", gradients=False) == 0.5
    assert report.worst_ratio(side="jax jit", gradients=True) is None
    assert report.checks[0].worst == BAD


def test_an_array_that_could_not_be_compared_is_the_worst() -> None:
    shapeless = compare(Estimate(np.zeros(2), np.zeros(2)), np.zeros(3))
    report = Report([check("torch eager", BAD, shapeless)])
    assert report.checks[0].worst == shapeless
    assert report.worst_ratio() == math.inf


def test_blame_names_the_side_that_is_wrong() -> None:
    one = Report([check("torch eager", GOOD), check("jax jit", BAD)])
    assert one.blame() == ["Shaw: jax jit wrong; torch eager right"]
    both = Report([check("torch eager", BAD), check("jax jit", BAD)])
    assert "suspect what they share" in both.blame()[0]
    assert Report([check("torch eager", GOOD)]).blame() == []


def a_report() -> Report:
    doubtful = Check("T5", 'a "case" & <more>', "torch compile", doubt="no compiler")
    infinite = Comparison("output", count=1, ratio=math.inf, index=(0, 1), got=math.nan)
    checks = [check("torch eager", GOOD), check("jax jit", infinite), doubtful]
    return Report(checks, {"torch": {"version": "2"}}, {"coverage": {"T5": [-3, 3]}}, 1.5)


def test_json_is_strict_and_complete() -> None:
    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is not JSON")

    data = json.loads(to_json(a_report()), parse_constant=refuse)
    assert data["verdict"] == "FAIL"
    assert data["checks"] == {"PASS": 1, "FAIL": 1, "INCONCLUSIVE": 1}
    assert data["results"][1]["comparisons"][0]["ratio"] == "inf"
    assert data["results"][1]["command"] == "relpos parity --case x"
    assert data["environment"] == {"torch": {"version": "2"}}


def test_junit_counts_failures_and_errors_and_never_passes_a_doubt() -> None:
    root = ElementTree.fromstring(to_junit(a_report()))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("3", "1", "1")
    assert [suite.get("name") for suite in root] == ["Shaw", "T5"]
    case = root[1][0]
    assert case.get("name") == 'a "case" & <more> / torch compile'
    assert case[0].tag == "error"
    assert root[0][1][0].tag == "failure"
    assert len(root[0][0]) == 0


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_whole(path, "first")
    assert path.read_text() == "first"
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "second \ud800")
    assert path.read_text() == "first"
    assert list(path.parent.iterdir()) == [path]
