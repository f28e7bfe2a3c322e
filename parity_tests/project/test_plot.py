"""Pictures: what is drawn is what the oracle says, and a file is written whole or not at all."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from relpos import weights
from relpos.cli import main
from relpos.cli.app import build_app
from relpos.cli.plot import array_of
from relpos.errors import RelposError, WeightsError
from relpos.oracle import relative_scores
from relpos.plot import Pattern, fresh, longest, pattern_of
from relpos.plot.draw import picture
from relpos.schemes import SCHEMES, T5, NoPosition, RoPE, Scheme, Shaw, Windowed
from relpos.schemes.base import Parameter, zeros
from relpos.schemes.catalogue import example_of
from relpos.settings import AttentionSettings


def plot(*words: object) -> str:
    """What `relpos plot` prints; its errors come through."""
    result = CliRunner().invoke(
        build_app(), ["plot", *map(str, words)], catch_exceptions=False, standalone_mode=False
    )
    return result.output


def pattern(scheme: Scheme, heads: int = 3, length: int = 7, head_dim: int = 8) -> Pattern:
    params = fresh(scheme, heads, head_dim)
    return pattern_of(
        scheme,
        params,
        num_heads=heads,
        head_dim=head_dim,
        length=longest(scheme, length),
    )


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_has_a_pattern(name: str) -> None:
    shown = pattern(example_of(SCHEMES[name]))
    H, (rows, columns) = 3, (len(shown.query_positions), len(shown.key_positions))
    assert shown.scores.shape == (H, rows, columns)
    assert shown.by_distance.shape == (H, len(shown.distances))
    assert np.isfinite(shown.by_distance).all()
    # Each entry of the heat map that lies on the curve is the curve's.
    for i, query in enumerate(shown.query_positions):
        if shown.query in (None, query):
            for j, key in enumerate(shown.key_positions):
                at = np.flatnonzero(shown.distances == key - query)
                expected = shown.by_distance[:, at[0]] if len(at) else np.full(H, np.nan)
                np.testing.assert_array_equal(shown.scores[:, i, j], expected)


@pytest.mark.parametrize("scheme", [Shaw(2, 1), T5(), Windowed(1, 2, per_head=True)])
def test_a_pattern_is_the_oracles_whole_matrix(scheme: Scheme) -> None:
    shown = pattern(scheme)
    x = np.random.default_rng([0, 1]).standard_normal((2, 3, 8))[0]
    for h in range(3):
        params = {n: a[h if len(a) > 1 else 0] for n, a in fresh(scheme, 3, 8).items()}
        q = np.tile(x[h], (7, 1))
        whole = relative_scores(scheme, params, q, q).output.value
        np.testing.assert_array_equal(shown.scores[h], whole)


def test_what_reads_the_content_is_told_from_what_does_not() -> None:
    assert [pattern(s).reads_content for s in (Shaw(2, 1), RoPE("half"), T5())] == [
        True,
        True,
        False,
    ]
    assert not pattern(Shaw(2, 1, keys=False)).reads_content


def test_values_are_the_table_and_its_ends() -> None:
    shown, table = pattern(Shaw(2, 1, per_head=True)), fresh(Shaw(2, 1, per_head=True), 3, 8)
    rows = table["value_table"][:, np.clip(shown.value_distances, -2, 1) + 2]
    np.testing.assert_array_equal(shown.values, rows)
    assert pattern(T5()).values is None
    assert pattern(Windowed(1, 1)).values.shape[0] == 1  # type: ignore[union-attr]


def test_a_pair_without_a_value_is_left_out() -> None:
    shown = pattern(Shaw(left=2, right=1, clip=False))
    assert shown.distances.tolist() == [-2, -1, 0, 1]
    apart = shown.key_positions[None, :] - shown.query_positions[:, None]
    np.testing.assert_array_equal(np.isnan(shown.scores[0]), (apart < -2) | (apart > 1))


def test_long_inputs_are_asked_for_once_per_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def counting(scheme: Scheme, params: Any, q: Any, k: Any, **rest: Any) -> Any:
        nonlocal asked
        asked += len(q) * len(k)
        return relative_scores(scheme, params, q, k, **rest)

    monkeypatch.setattr("relpos.plot.pattern.relative_scores", counting)
    shown = pattern(T5(), heads=1, length=1000)
    assert 1999 <= asked <= 1999 + 40
    assert len(shown.distances) == 1999


def test_nothing_to_see_is_known_as_such() -> None:
    assert pattern(NoPosition()).is_empty
    assert not pattern(Shaw(2, 1, keys=False)).is_empty


@pytest.mark.parametrize("heads", [1, 2, 9])
def test_a_picture_of_any_number_of_heads(heads: int) -> None:
    scheme = Shaw(2, 1, values=heads == 2, per_head=True)
    image = Image.open(io.BytesIO(picture(pattern(scheme, heads), "Fresh.")))
    assert image.format == "PNG"
    pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
    assert len(np.unique(pixels, axis=0)) > 50


def test_a_picture_is_the_same_every_time() -> None:
    shown = pattern(T5(), 1)
    assert picture(shown, "Fresh.") == picture(shown, "Fresh.")


def test_a_picture_leaves_matplotlib_as_it_was() -> None:
    before = dict(mpl.rcParams)
    picture(pattern(T5(), 2), "Fresh.")
    assert dict(mpl.rcParams) == before


def test_the_command_writes_png_and_svg(tmp_path: Path) -> None:
    png, svg = tmp_path / "a.png", tmp_path / "b.SVG"
    small = ("--set", "left=3", "--set", "right=1", "--heads", 2, "--head-dim", 4, "--length", 6)
    assert "Shaw(left=3, right=1" in plot("sHAW", *small, "--out", png)
    plot("shaw", *small, "--out", svg)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in svg.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.SVG"]


def test_a_picture_needs_no_window_no_framework_and_a_name_by_default(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from relpos.cli.main import main\n"
        "try:\n"
        "    main(['plot', 't5', '--length', '5', '--heads', '2'])\n"
        "except SystemExit:\n"
        "    pass\n"
        "print(sorted({'matplotlib.pyplot', 'torch', 'jax'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert [path.name for path in tmp_path.iterdir()] == ["t5.png"]


def test_a_file_that_is_there_is_not_replaced_unasked(tmp_path: Path) -> None:
    target = tmp_path / "t5.png"
    target.write_text("mine")
    few = ("--length", 5, "--heads", 1, "--out", target)
    with pytest.raises(WeightsError, match="not replaced unasked"):
        plot("t5", *few)
    assert target.read_text() == "mine"
    plot("t5", *few, "--overwrite")
    assert target.read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_fails_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*words: object, **rest: object) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr("relpos.plot.draw.picture", broken)
    with pytest.raises(ZeroDivisionError):
        plot("t5", "--length", 5, "--heads", 1, "--out", tmp_path / "t5.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("shaw", "--set", "lft=3"), "settings that Shaw has. Got lft; expected left, right"),
        (("shaw", "--set", "left=-3"), "Shaw.left counts positions"),
        (("shaw", "--set", "left"), "--set gives each setting"),
        (("rope", "--head-dim", 7), "rotates whole pairs"),
        (("t5", "--out", "t5.jpg"), "PNG or SVG"),
        (("t5", "--out", "nowhere/t5.png"), "folder of an output exists"),
        (("noposition",), "needs something to show"),
        (("bias",), "known by name"),
        ((), "by NAME, or of a layer by --weights"),
        (("t5", "--layer", "0"), "--layer without --weights"),
        (("t5", "--weights", "t5.safetensors"), "says itself which scheme"),
        (("--weights", "t5.safetensors"), "must exist"),
    ],
)
def test_what_cannot_be_drawn_is_explained(
    words: tuple[object, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RelposError) as raised:
        plot(*words, "--length", 5)
    assert message in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_layer_out_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = AttentionSettings(6, 3, T5(num_buckets=4, max_distance=2), bias=False)
    rng = np.random.default_rng(0)
    tensors = {
        f"enc.{n}.{p.name}": rng.normal(size=p.shape).astype(np.float32)
        for n in range(2)
        for p in settings.parameters()
    }
    weights.save(
        tmp_path / "w.safetensors", weights.Weights({f"enc.{n}": settings for n in (0, 1)}, tensors)
    )
    drawn: list[Pattern] = []

    def seen(shown: Pattern, *words: Any, **rest: Any) -> bytes:
        drawn.append(shown)
        return b""

    monkeypatch.setattr("relpos.plot.draw.picture", seen)
    words = ("--weights", tmp_path / "w.safetensors", "--length", 4, "--out", tmp_path / "w.png")
    with pytest.raises(WeightsError, match=r"Got no --layer; expected one of enc\.0, enc\.1"):
        plot(*words)
    plot(*words, "--layer", "enc.1")
    (shown,) = drawn
    at_zero = shown.by_distance[:, np.flatnonzero(shown.distances == 0)[0]]
    np.testing.assert_array_equal(at_zero, tensors["enc.1.bias_table"][:, 0])


def test_a_missing_matplotlib_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "relpos.plot.draw", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    monkeypatch.delattr("relpos.plot.draw", raising=False)
    assert main.main(["plot", "t5", "--length", "5"]) == 2
    assert "pip install 'relpos[plot]'" in capsys.readouterr().err


def test_what_is_tied_to_a_projection_is_read_from_it() -> None:
    settings = AttentionSettings(6, 4, NoPosition(), num_kv_heads=2, head_dim=3, bias=False)
    rng = np.random.default_rng(0)
    tensors = {p.name: rng.normal(size=p.shape) for p in settings.parameters()}
    file = weights.Weights({"": settings}, tensors)
    kernel = Parameter("w", ("heads", "embed", "head_dim"), (4, 6, 3), zeros(), "key.kernel")
    expected = [tensors["key.kernel"][:, g] for g in (0, 0, 1, 1)]
    np.testing.assert_array_equal(array_of(file, "", settings, kernel), expected)
    bias = Parameter("b", ("heads", "head_dim"), (4, 3), zeros(), "query.bias")
    assert not array_of(file, "", settings, bias).any()
