"""`relpos convert` and `relpos inspect`, run as a person runs them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from parity_tests.weights.samples import bits, random_weights, settings_of
from relpos import AttentionSettings, RoPE, SettingError, Shaw, WeightsError, Windowed
from relpos.cli.convert import parse_scheme
from relpos.cli.main import main
from relpos.weights import export, load, read_arrays, save, write_safetensors
from relpos.weights.audit import fingerprint

VITS_LAYER = AttentionSettings(embed_dim=6, num_heads=2, scheme=Windowed(left=2, right=2))
SHAW_LAYER = settings_of(Shaw(left=3, right=1, values=False), causal=True)


def run(*words: object) -> int:
    """The exit code of `relpos WORDS`."""
    try:
        return main([str(word) for word in words])
    except SystemExit as end:
        return int(end.code or 0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model in VITS's names: two layers, what stands beside them, and a decoder."""
    arrays, _ = export(random_weights({"0": VITS_LAYER, "1": VITS_LAYER}), "vits", prefix="enc.")
    arrays["enc.norm_layers_1.0.gamma"] = np.ones(6, np.float32)
    arrays["dec.weight"] = np.ones((3, 5), np.float32)
    write_safetensors(tmp_path / "model.safetensors", arrays)
    return tmp_path / "model.safetensors"


@pytest.fixture
def state_dict(tmp_path: Path) -> Path:
    write_safetensors(
        tmp_path / "torch.safetensors", export(random_weights(SHAW_LAYER), "relpos-torch")[0]
    )
    return tmp_path / "torch.safetensors"


VITS = ("--from", "vits", "--prefix", "enc.", "--heads", 2)


class TestConvert:
    def test_from_vits_to_neutral_and_back(self, model: Path, tmp_path: Path) -> None:
        neutral, back = tmp_path / "n.safetensors", tmp_path / "b.safetensors"
        assert run("convert", model, neutral, *VITS) == 0
        assert load(neutral) == random_weights({"0": VITS_LAYER, "1": VITS_LAYER})
        words = ("--from", "neutral", "--to", "vits", "--target-prefix", "enc.")
        assert run("convert", neutral, back, *words) == 0
        kept = {n: a for n, a in read_arrays(model).items() if "attn_layers" in n}
        assert bits(read_arrays(back)) == bits(kept)

    def test_from_one_layout_to_another(self, model: Path, tmp_path: Path) -> None:
        target = tmp_path / "t.safetensors"
        assert run("convert", model, target, *VITS, "--to", "vits-transformers") == 0
        expected, _ = export(
            random_weights({"0": VITS_LAYER, "1": VITS_LAYER}), "vits-transformers"
        )
        assert bits(read_arrays(target)) == bits(dict(sorted(expected.items())))

    @pytest.mark.parametrize(
        "scheme",
        [
            ("--scheme", "Shaw", "--set", "left=3", "--set", "right=1", "--set", "values=false"),
            ("--scheme", '{"scheme": "Shaw", "left": 3, "right": 1, "values": false}'),
            ("--scheme", '{"scheme": "Shaw", "left": 3, "values": false}', "--set", "right=1"),
        ],
        ids=["names", "JSON", "both"],
    )
    def test_what_weights_do_not_tell_is_said(
        self, state_dict: Path, tmp_path: Path, scheme: tuple[str, ...]
    ) -> None:
        words = ("--from", "relpos-torch", "--heads", 6, "--kv-heads", 2, "--causal", *scheme)
        assert run("convert", state_dict, tmp_path / "n.safetensors", *words) == 0
        assert load(tmp_path / "n.safetensors") == random_weights(SHAW_LAYER)

    def test_the_audit_is_a_table_and_a_file(
        self, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        audit = tmp_path / "audit.json"
        target = tmp_path / "n.safetensors"
        assert run("convert", model, target, *VITS, "--audit", audit) == 0
        shown = capsys.readouterr().out
        assert "20 used, 1 dropped on purpose, 1 outside the prefix 'enc.'" in shown
        assert "squeeze 2, transpose, split 1 into (H, d)" in shown
        assert "dec.weight" not in shown
        (record,) = json.loads(audit.read_text())["audits"]
        assert len(record["rows"]) == 21
        assert record["outside"] == ["dec.weight"]
        source = read_arrays(model)
        for row in record["rows"]:
            assert row["sha256"] == fingerprint(source[row["source"]])

    def test_verbose_names_what_is_outside(
        self, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run("convert", model, tmp_path / "n.safetensors", *VITS, "--verbose") == 0
        assert "outside: dec.weight" in capsys.readouterr().out

    def test_a_dry_run_writes_nothing(self, model: Path, tmp_path: Path) -> None:
        words = (*VITS, "--dry-run", "--audit", tmp_path / "a.json")
        assert run("convert", model, tmp_path / "n.safetensors", *words) == 0
        assert [*tmp_path.iterdir()] == [model]

    def test_overwrite(self, model: Path, tmp_path: Path) -> None:
        target = tmp_path / "n.safetensors"
        target.write_text("mine")
        assert run("convert", model, target, *VITS) == 2
        assert target.read_text() == "mine"
        assert run("convert", model, target, *VITS, "--overwrite") == 0
        assert len(load(target).layers) == 2


BAD_COMMANDS = {
    "no heads": (("--from", "vits", "--prefix", "enc."), "--heads"),
    "heads that do not divide": ((*VITS[:-1], 4), "heads 4"),
    "a wrong prefix": (("--from", "vits", "--heads", 2), "prefix 'enc.'"),
    "an unknown layout": (("--from", "vitz"), "vits-transformers"),
    "an unknown target layout": ((*VITS, "--to", "vitz"), "vits-transformers"),
    "another scheme": ((*VITS, "--scheme", "NoPosition"), "means Windowed(left=2, right=2"),
    "an unknown scheme": ((*VITS, "--scheme", "Sorcery"), "RoPE"),
    "a setting of no scheme": ((*VITS, "--set", "left=2"), "--scheme NAME"),
    "half a scheme": ((*VITS, "--scheme", "Shaw", "--set", "left=2"), "right (needed)"),
    "a setting that is a word": (
        (*VITS, "--scheme", "Shaw", "--set", "left=2", "--set", "right=few"),
        "Shaw.right must have its declared type",
    ),
    "a setting without a value": ((*VITS, "--scheme", "Shaw", "--set", "left"), "name=value"),
    "broken JSON": ((*VITS, "--scheme", '{"scheme"'), "JSON object"),
    "not a neutral file": (("--from", "neutral", "--to", "vits"), "neutral weights file"),
    "neutral with settings": (("--from", "neutral", "--to", "vits", "--heads", 2), "none of them"),
    "neutral to neutral": (("--from", "neutral"), "end of a conversion"),
    "a prefix in a neutral file": ((*VITS, "--target-prefix", "x."), "no --target-prefix"),
}


@pytest.mark.parametrize("kind", BAD_COMMANDS)
def test_a_command_that_cannot_be_done_does_nothing(
    kind: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, message = BAD_COMMANDS[kind]
    before = model.read_bytes()
    assert run("convert", model, tmp_path / "n.safetensors", *words) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("Error: ")
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert [*tmp_path.iterdir()] == [model]
    assert model.read_bytes() == before


BAD_TARGETS = {
    "the source": "model.safetensors",
    "another suffix": "n.npz",
    "a folder that is not there": "none/n.safetensors",
}


@pytest.mark.parametrize("kind", BAD_TARGETS)
def test_a_target_that_cannot_be_written(
    kind: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = model.read_bytes()
    target = tmp_path / BAD_TARGETS[kind]
    assert run("convert", model, target, *VITS, "--overwrite") == 2
    assert capsys.readouterr().err.startswith("Error: ")
    assert model.read_bytes() == before
    assert [*tmp_path.iterdir()] == [model]


def test_an_audit_in_the_place_of_the_target(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "n.safetensors"
    assert run("convert", model, target, *VITS, "--audit", target) == 2
    assert "different paths" in capsys.readouterr().err
    assert not target.exists()


def test_a_source_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (("inspect", tmp_path / "a.onnx"), ("inspect", tmp_path / "a.safetensors")):
        assert run(*command) == 2
        assert capsys.readouterr().err.startswith("Error: ")
    assert run("convert", tmp_path / "a.pt", tmp_path / "n.safetensors", *VITS) == 2
    assert "there is no file" in capsys.readouterr().err


class TestInspect:
    def test_a_neutral_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        save(tmp_path / "n.safetensors", random_weights({"encoder.3": SHAW_LAYER}, "bfloat16"))
        assert run("inspect", tmp_path / "n.safetensors") == 0
        shown = capsys.readouterr().out
        assert "layer encoder.3: AttentionSettings(embed_dim=7, num_heads=6" in shown
        assert "[embed 7, kv_heads 2, head_dim 4]" in shown
        assert "[shared 1, distance 5, head_dim 4]" in shown
        assert "bfloat16" in shown

    def test_a_neutral_file_as_json(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        save(tmp_path / "n.safetensors", random_weights(SHAW_LAYER))
        assert run("inspect", tmp_path / "n.safetensors", "--json") == 0
        described = json.loads(capsys.readouterr().out)
        assert described["kind"] == "neutral"
        layer = described["layers"][""]
        assert layer["settings"] == SHAW_LAYER.to_dict()
        assert [p["name"] for p in layer["parameters"]] == [p.name for p in SHAW_LAYER.parameters()]
        assert sum(p["count"] for p in layer["parameters"]) == described["count"]

    def test_a_model(self, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("inspect", model) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "22 arrays" in shown
        assert "dec.weight [3, 5] float32 15" in shown
        assert "match the layout vits" in shown
        assert "below the prefix 'enc.': 2 layer(s), '0', '1'" in shown
        assert "relpos convert needs --heads" in shown

    def test_a_model_as_json(self, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("inspect", model, "--json") == 0
        described = json.loads(capsys.readouterr().out)
        assert described["layouts"] == [{"layout": "vits", "prefix": "enc.", "layers": ["0", "1"]}]
        assert len(described["tensors"]) == 22

    def test_something_else(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write_safetensors(tmp_path / "x.safetensors", {"x": np.ones(3)})
        assert run("inspect", tmp_path / "x.safetensors") == 0
        assert "match none of the layouts" in capsys.readouterr().out

    def test_a_damaged_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "x.safetensors").write_bytes(b"no")
        assert run("inspect", tmp_path / "x.safetensors") == 2
        assert "whole safetensors file" in capsys.readouterr().err


def test_a_scheme_is_read_from_words() -> None:
    assert parse_scheme(None, []) is None
    words = ["layout=interleaved", "rotary_dim=null", "base=5e5"]
    assert parse_scheme("RoPE", words) == RoPE("interleaved", base=5e5)
    with pytest.raises(WeightsError, match="once"):
        parse_scheme("RoPE", ["layout=half", "layout=half"])
    with pytest.raises(SettingError, match="declared type"):
        parse_scheme("T5", ["bidirectional=maybe"])
