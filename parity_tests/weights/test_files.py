"""Neutral files: bit-exact, whole or not at all, and safe to read whoever wrote them."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity_tests.weights.samples import any_settings, bits, dtypes, random_weights, settings_of
from relpos import AttentionSettings, RoPE, Shaw, WeightsError
from relpos.weights import load, read_arrays, save, write_safetensors
from relpos.weights.files import read_metadata
from relpos.weights.neutral import FLOAT_DTYPES

SETTINGS = settings_of(Shaw(left=3, right=1))
#: The folder is made once and each example writes its own files over the last one's.
SHARED_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@SHARED_FOLDER
@given(any_settings(), any_settings(), dtypes, st.integers(0, 99))
def test_a_file_gives_back_every_bit(
    tmp_path: Path, first: AttentionSettings, second: AttentionSettings, dtype: str, seed: int
) -> None:
    weights = random_weights({"a.0": first, "a.1": second}, dtype, seed)
    save(tmp_path / "w.safetensors", weights, overwrite=True)
    assert load(tmp_path / "w.safetensors") == weights


def test_dtypes_may_differ_inside_one_file(tmp_path: Path) -> None:
    mixed = dict(random_weights(SETTINGS).tensors)
    for name, dtype in zip(mixed, [*FLOAT_DTYPES] * 3, strict=False):
        mixed[name] = random_weights(SETTINGS, dtype).tensors[name]
    weights = type(random_weights(SETTINGS))({"": SETTINGS}, mixed)
    save(tmp_path / "w.safetensors", weights)
    assert load(tmp_path / "w.safetensors") == weights


def test_the_file_says_by_itself_what_it_is(tmp_path: Path) -> None:
    save(tmp_path / "w.safetensors", random_weights({"encoder.0": SETTINGS}))
    metadata = read_metadata(tmp_path / "w.safetensors")
    assert metadata["format"] == "relpos"
    assert metadata["version"] == "1"
    assert json.loads(metadata["layers"]) == {"encoder.0": SETTINGS.to_dict()}


def test_other_readers_of_safetensors_read_it(tmp_path: Path) -> None:
    weights = random_weights(SETTINGS, "float16")
    save(tmp_path / "w.safetensors", weights)
    read = safetensors.numpy.load_file(tmp_path / "w.safetensors")
    assert {name: array.tobytes() for name, array in read.items()} == {
        name: array.tobytes() for name, array in weights.tensors.items()
    }


def test_equal_weights_give_equal_bytes(tmp_path: Path) -> None:
    tensors = random_weights(SETTINGS, "bfloat16").tensors
    for name, order in (("a.safetensors", 1), ("b.safetensors", -1)):
        shuffled = dict([*tensors.items()][::order])
        save(tmp_path / name, type(random_weights(SETTINGS))({"": SETTINGS}, shuffled))
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_a_name_that_would_mislead_and_a_source_that_is_no_weights_are_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(WeightsError, match=r"must end in \.safetensors.*w\.safetensors"):
        save(tmp_path / "w.pt", random_weights(SETTINGS))
    with pytest.raises(WeightsError, match=r"save takes Weights.*to_neutral\(layer\)"):
        save(tmp_path / "w.safetensors", random_weights(SETTINGS).tensors)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_an_existing_file_is_kept_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        save(path, random_weights(SETTINGS))
    assert path.read_text() == "mine"
    save(path, random_weights(SETTINGS), overwrite=True)
    assert load(path) == random_weights(SETTINGS)


def test_a_write_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w.safetensors"
    path.write_text("mine")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(path, random_weights(SETTINGS), overwrite=True)
    assert path.read_text() == "mine"
    assert os.listdir(tmp_path) == ["w.safetensors"]


def test_a_reader_of_the_old_file_keeps_it_whole(tmp_path: Path) -> None:
    """Replaced at once under its name, never rewritten in place."""
    path = tmp_path / "w.safetensors"
    save(path, random_weights(SETTINGS, seed=1))
    before = path.read_bytes()
    with open(path, "rb") as reader:
        save(path, random_weights(SETTINGS, seed=2), overwrite=True)
        assert reader.read() == before


def test_every_array_begins_at_a_multiple_of_its_item_size(tmp_path: Path) -> None:
    """Then a program may map the file and use the arrays where they lie."""
    arrays = {
        "a": random_weights(SETTINGS, "bfloat16").tensors["out.bias"],
        "b": np.arange(3, dtype=np.float32),
        "c": np.arange(5, dtype=np.int8),
        "d": np.arange(2.0),
    }
    write_safetensors(tmp_path / "w.safetensors", arrays, metadata={"a": "b"})
    content = (tmp_path / "w.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    header = json.loads(content[8 : 8 + length])
    for name, array in arrays.items():
        assert header[name]["data_offsets"][0] % array.dtype.itemsize == 0, name
    assert bits(read_arrays(tmp_path / "w.safetensors")) == bits(arrays)


def test_a_dtype_that_the_format_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="table complex128"):
        write_safetensors(tmp_path / "w.safetensors", {"table": np.zeros(3, complex)})
    assert not any(tmp_path.iterdir())


def _with_metadata(**changes: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        layers = json.dumps({"": SETTINGS.to_dict()})
        metadata = {"format": "relpos", "version": "1", "layers": layers, **changes}
        write_safetensors(path, random_weights(SETTINGS).tensors, metadata=metadata)

    return write


def _with_layer(**changes: object) -> Callable[[Path], None]:
    return _with_metadata(layers=json.dumps({"": {**SETTINGS.to_dict(), **changes}}))


def _pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"query.kernel": [1.0]}))


def _foreign(path: Path) -> None:
    write_safetensors(path, {"query.kernel": np.zeros(3)}, metadata={"format": "pt"})


def _without_last_byte(path: Path) -> None:
    save(path, random_weights(SETTINGS))
    path.write_bytes(path.read_bytes()[:-1])


def _name_twice(path: Path) -> None:
    header = (
        b'{"__metadata__":{"format":"relpos","version":"1","layers":"{}"},'
        b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
        b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    )
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))


BAD_FILES = {
    "empty": (lambda path: path.write_bytes(b""), "whole safetensors file"),
    "a pickle": (_pickle, "whole safetensors file"),
    "another safetensors file": (_foreign, "neutral weights file"),
    "no metadata": (lambda path: write_safetensors(path, {"a": np.zeros(1)}), "neutral weights"),
    "one byte short": (_without_last_byte, "whole safetensors file"),
    "a header longer than the file": (
        lambda path: path.write_bytes((10**6).to_bytes(8, "little") + b"{}"),
        "whole safetensors file",
    ),
    "a header of 2**63 bytes": (
        lambda path: path.write_bytes((2**63).to_bytes(8, "little") + b"{}"),
        "whole safetensors file",
    ),
    "a name twice": (_name_twice, "names everything once"),
    "a later version": (_with_metadata(version="2"), "version"),
    "layers that are no JSON": (_with_metadata(layers="{"), "JSON"),
    "layers that are a list": (_with_metadata(layers="[]"), "JSON object"),
    "layers nested without end": (_with_metadata(layers="[" * 10**5), "JSON"),
    "a layer twice": (_with_metadata(layers='{"a": {}, "a": {}}'), "twice"),
    "no layers": (_with_metadata(layers="{}"), "at least one layer"),
    "settings that are a number": (_with_metadata(layers='{"": 7}'), "possible settings"),
    "settings without a field": (_with_metadata(layers='{"": {}}'), "every field once"),
    "an unknown setting": (_with_layer(theta=1), "every field once"),
    "an unknown scheme": (_with_layer(scheme={"scheme": "Sorcery"}), "known by name"),
    "a scheme that is a list": (_with_layer(scheme=[]), "possible settings"),
    "heads that do not divide": (_with_layer(head_dim=None), "divisible"),
    "a size beyond all floats": (_with_layer(embed_dim=10**400), "possible settings|misshapen"),
    "a scale beyond all floats": (_with_layer(scale=10**400), "possible settings"),
    "a switch that is a word": (_with_layer(causal="false"), "declared type"),
    "a switch inside the scheme that is a word": (
        _with_layer(scheme={**SETTINGS.scheme.to_dict(), "clip": "no"}),
        "declared type",
    ),
    "settings of another table": (
        _with_layer(scheme=Shaw(left=4, right=1).to_dict()),
        r"misshapen: key_table \[1, 5, 4\] for \[1, 6, 4\]",
    ),
    "settings of a scheme without tables": (
        _with_layer(scheme=RoPE("half").to_dict()),
        "unexpected: key_table",
    ),
    "a path with a slash": (
        _with_metadata(layers=json.dumps({"../a": SETTINGS.to_dict()})),
        "impossible path",
    ),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_file_is_refused_with_its_reason(kind: str, tmp_path: Path) -> None:
    write, message = BAD_FILES[kind]
    write(tmp_path / "w.safetensors")
    with pytest.raises(WeightsError, match=message):
        load(tmp_path / "w.safetensors")


def test_a_missing_file_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.safetensors")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
FIELDS = [*SETTINGS.to_dict()]
SCHEME_FIELDS = [*SETTINGS.scheme.to_dict()]


@SHARED_FOLDER
@given(st.sampled_from(FIELDS), st.sampled_from(SCHEME_FIELDS), JSON, st.booleans())
def test_any_json_as_a_setting_is_read_or_refused(
    tmp_path: Path, field: str, scheme_field: str, value: object, inner: bool
) -> None:
    stored = SETTINGS.to_dict()
    if inner:
        stored["scheme"][scheme_field] = value
    else:
        stored[field] = value
    (tmp_path / "w.safetensors").unlink(missing_ok=True)
    _with_metadata(layers=json.dumps({"": stored}))(tmp_path / "w.safetensors")
    try:
        weights = load(tmp_path / "w.safetensors")
    except WeightsError:
        return
    assert weights.settings.to_dict() == stored


@SHARED_FOLDER
@given(st.data())
def test_a_damaged_file_is_refused_or_still_whole(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "w.safetensors"
    save(path, random_weights(SETTINGS, "bfloat16"), overwrite=True)
    content = bytearray(path.read_bytes())
    header = int.from_bytes(content[:8], "little") + 8
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, header - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, 2 * len(content)))])
    try:
        weights = load(path)
    except WeightsError:
        return
    shapes = {p.name: p.shape for s in weights.layers.values() for p in s.parameters()}
    assert sorted(a.shape for a in weights.tensors.values()) == sorted(shapes.values())


class TestReadArrays:
    ARRAYS = {  # noqa: RUF012 - only read
        "a.kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
        "steps": np.array([3], np.int64),
    }

    def _check(self, path: Path) -> None:
        read = read_arrays(path)
        assert list(read) == list(self.ARRAYS)
        for name, array in self.ARRAYS.items():
            assert read[name].dtype == array.dtype
            np.testing.assert_array_equal(read[name], array)

    def test_npz(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "w.npz", **self.ARRAYS)
        self._check(tmp_path / "w.npz")

    def test_npz_of_another_byte_order_becomes_ours(self, tmp_path: Path) -> None:
        np.savez(
            tmp_path / "w.npz",
            **{n: a.astype(a.dtype.newbyteorder(">")) for n, a in self.ARRAYS.items()},
        )
        self._check(tmp_path / "w.npz")

    @pytest.mark.parametrize("suffix", ["pt", "pth", "bin"])
    def test_torch(self, tmp_path: Path, suffix: str) -> None:
        torch.save({n: torch.tensor(a) for n, a in self.ARRAYS.items()}, tmp_path / f"w.{suffix}")
        self._check(tmp_path / f"w.{suffix}")

    def test_torch_nested_with_other_things_beside(self, tmp_path: Path) -> None:
        stored = {"model": {"a": torch.ones(2, dtype=torch.bfloat16)}, "epoch": 3, "loss": [0.5]}
        torch.save(stored, tmp_path / "w.pt")
        read = read_arrays(tmp_path / "w.pt")
        assert list(read) == ["model.a"]
        assert read["model.a"].dtype.name == "bfloat16"

    def test_torch_with_one_name_twice(self, tmp_path: Path) -> None:
        torch.save({"a": {"b": torch.ones(1)}, "a.b": torch.zeros(1)}, tmp_path / "w.pt")
        with pytest.raises(WeightsError, match=r"a\.b twice"):
            read_arrays(tmp_path / "w.pt")

    def test_safetensors(self, tmp_path: Path) -> None:
        write_safetensors(tmp_path / "w.safetensors", dict(sorted(self.ARRAYS.items())))
        read = read_arrays(tmp_path / "w.safetensors")
        assert {name: array.tobytes() for name, array in read.items()} == {
            name: array.tobytes() for name, array in self.ARRAYS.items()
        }

    def _model(self, path: Path, *names: str, external: bool = False) -> None:
        onnx = pytest.importorskip("onnx", reason="reading ONNX needs the extra demo")
        tensors = [onnx.numpy_helper.from_array(self.ARRAYS[n], n) for n in names]
        if external:
            tensors[0].ClearField("raw_data")
            tensors[0].data_location = onnx.TensorProto.EXTERNAL
            entry = tensors[0].external_data.add()
            entry.key, entry.value = "location", "/etc/passwd"
        graph = onnx.helper.make_graph([], "g", [], [], tensors)
        path.write_bytes(onnx.helper.make_model(graph).SerializeToString())

    def test_onnx(self, tmp_path: Path) -> None:
        self._model(tmp_path / "w.onnx", *self.ARRAYS)
        self._check(tmp_path / "w.onnx")

    def test_onnx_with_one_name_twice(self, tmp_path: Path) -> None:
        self._model(tmp_path / "w.onnx", "steps", "steps")
        with pytest.raises(WeightsError, match="steps twice"):
            read_arrays(tmp_path / "w.onnx")

    def test_onnx_that_names_another_file(self, tmp_path: Path) -> None:
        self._model(tmp_path / "w.onnx", *self.ARRAYS, external=True)
        with pytest.raises(WeightsError, match=r"a\.kernel in another file"):
            read_arrays(tmp_path / "w.onnx")

    @pytest.mark.parametrize("suffix", ["npz", "pt", "onnx", "safetensors"])
    def test_bytes_of_something_else(self, tmp_path: Path, suffix: str) -> None:
        (tmp_path / f"w.{suffix}").write_bytes(b"\xff not weights at all" * 9)
        with pytest.raises(WeightsError, match="expected an undamaged one"):
            read_arrays(tmp_path / f"w.{suffix}")

    @SHARED_FOLDER
    @given(st.data(), st.sampled_from(["npz", "pt", "onnx", "safetensors"]))
    def test_damaged_bytes_are_read_or_refused(
        self, tmp_path: Path, data: st.DataObject, suffix: str
    ) -> None:
        path = tmp_path / f"w.{suffix}"
        if suffix == "npz":
            np.savez_compressed(path, **self.ARRAYS)
        elif suffix == "pt":
            torch.save({n: torch.tensor(a) for n, a in self.ARRAYS.items()}, path)
        elif suffix == "onnx":
            self._model(path, *self.ARRAYS)
        else:
            write_safetensors(path, self.ARRAYS, overwrite=True)
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content[: data.draw(st.integers(0, 2 * len(content)))])
        try:
            arrays = read_arrays(path)
        except WeightsError:
            return
        assert all(isinstance(array, np.ndarray) for array in arrays.values())

    def test_an_encrypted_archive(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "w.npz", **self.ARRAYS)
        content = bytearray((tmp_path / "w.npz").read_bytes())
        for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            content[content.index(signature) + flags] |= 1
        (tmp_path / "w.npz").write_bytes(content)
        with pytest.raises(WeightsError, match="encrypted"):
            read_arrays(tmp_path / "w.npz")

    def test_nothing_is_unpickled(self, tmp_path: Path) -> None:
        class Attack:
            def __reduce__(self) -> tuple[object, ...]:
                return os.mkdir, (str(tmp_path / "attacked"),)

        torch.save({"a": torch.ones(1), "b": Attack()}, tmp_path / "w.pt")
        np.savez(tmp_path / "w.npz", a=np.array([Attack()], object))
        with pytest.raises(WeightsError, match="tensors alone"):
            read_arrays(tmp_path / "w.pt")
        with pytest.raises(WeightsError, match="plain arrays"):
            read_arrays(tmp_path / "w.npz")
        assert not (tmp_path / "attacked").exists()

    def test_an_unknown_suffix(self, tmp_path: Path) -> None:
        with pytest.raises(WeightsError, match=r"\.safetensors, \.onnx"):
            read_arrays(tmp_path / "w.ckpt")

    def test_a_file_without_arrays(self, tmp_path: Path) -> None:
        torch.save({"epoch": 3}, tmp_path / "w.pt")
        with pytest.raises(WeightsError, match="holds arrays"):
            read_arrays(tmp_path / "w.pt")
