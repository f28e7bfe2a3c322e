"""Weights on disk: the neutral file, and plain files of named arrays.

A neutral file is one safetensors file whose metadata says by itself what it is:

    {"format": "relpos", "version": "1", "layers": '{"encoder.0": {"embed_dim": 192, ...}}'}

Files are written whole or not at all, the same weights always give the same bytes, and nothing that
is read is ever unpickled into anything but arrays.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import safetensors

from relpos.errors import SettingError, WeightsError
from relpos.settings import AttentionSettings
from relpos.weights.neutral import FLOAT_DTYPES, Array, Weights
from relpos.weights.stored import read_stored_settings

__all__ = [
    "is_neutral",
    "load",
    "read_metadata",
    "read_safetensors",
    "save",
    "write_safetensors",
    "write_whole",
]

FORMAT = "relpos"
VERSION = "1"

_CODES: dict[str, np.dtype[Any]] = {
    "BF16": FLOAT_DTYPES["bfloat16"],
    "F16": FLOAT_DTYPES["float16"],
    "F32": FLOAT_DTYPES["float32"],
    "F64": FLOAT_DTYPES["float64"],
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "C64": np.dtype(np.complex64),
    "BOOL": np.dtype(np.bool_),
    **{f"I{8 * n}": np.dtype(f"<i{n}") for n in (1, 2, 4, 8)},
    **{f"U{8 * n}": np.dtype(f"<u{n}") for n in (1, 2, 4, 8)},
}
_NAMES = {dtype: code for code, dtype in _CODES.items()}


def save(path: str | os.PathLike[str], weights: Weights, *, overwrite: bool = False) -> None:
    """Write a neutral file, whole or not at all.

    Args:
        path: Where to; the name of a neutral file ends in `.safetensors`.
        weights: What to write.
        overwrite: Replace a file that is there.

    Raises:
        FileExistsError: The path exists and `overwrite` is False.
        WeightsError: The name has another ending, or `weights` is something else.
    """
    if not isinstance(weights, Weights):
        raise WeightsError(
            "save takes Weights",
            got=type(weights).__name__,
            expected="relpos.weights.to_neutral(layer) for a layer",
        )
    if Path(path).suffix != ".safetensors":
        raise WeightsError(
            "the name of a neutral file must end in .safetensors",
            got=str(path),
            expected=f"{Path(path).with_suffix('.safetensors')}",
        )
    layers = {path: settings.to_dict() for path, settings in weights.layers.items()}
    metadata = {"format": FORMAT, "version": VERSION, "layers": json.dumps(layers)}
    write_safetensors(path, weights.tensors, metadata=metadata, overwrite=overwrite)


def load(path: str | os.PathLike[str]) -> Weights:
    """Read a neutral file.

    Raises:
        WeightsError: It is not a neutral file, is damaged, or its settings and tensors disagree.
        FileNotFoundError: There is no such file.
    """
    tensors, metadata = _read(Path(path))
    if not is_neutral(metadata):
        raise WeightsError(
            f"{path} must be a neutral weights file",
            got=f"a safetensors file with the metadata {metadata}",
            expected=f'metadata with "format": "{FORMAT}"; other files go through '
            "relpos.weights.read_arrays and convert",
        )
    if metadata.get("version") != VERSION:
        raise WeightsError(
            f"{path} must have a version of the neutral format that this relpos reads",
            got=repr(metadata.get("version")),
            expected=repr(VERSION),
        )
    return Weights(_parse_layers(path, metadata.get("layers", "")), tensors)


def is_neutral(metadata: Mapping[str, str]) -> bool:
    """Whether safetensors metadata says that the file is neutral weights."""
    return metadata.get("format") == FORMAT


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The metadata of a safetensors file; its data is not read.

    Raises:
        WeightsError: It is not a safetensors file, or is damaged.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            return dict(file.metadata() or {})
    except safetensors.SafetensorError as error:
        raise _damaged(path, error) from error


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays of any safetensors file, by name, bfloat16 included."""
    return _read(Path(path))[0]


def write_safetensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Array],
    *,
    metadata: Mapping[str, str] | None = None,
    overwrite: bool = False,
) -> None:
    """Write arrays as one safetensors file, whole or not at all.

    The bytes depend on nothing but the arguments. The library's own writer orders metadata at
    random, so the header is made here; it is a length, a JSON text and the arrays one by one.

    Raises:
        FileExistsError: The path exists and `overwrite` is False.
        WeightsError: An array has a dtype that the format does not know.
    """
    unknown = [f"{name} {a.dtype}" for name, a in tensors.items() if a.dtype not in _NAMES]
    if unknown:
        raise WeightsError(
            "safetensors stores arrays of certain dtypes only",
            got=", ".join(unknown),
            expected=", ".join(dtype.name for dtype in _NAMES),
        )
    # Wide dtypes first: then every array begins at a multiple of its item size.
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    start = 0
    for name in names:
        array = tensors[name]
        offsets = [start, start + array.nbytes]
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": offsets,
        }
        start = offsets[1]
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    text += b" " * (-len(text) % 8)
    chunks = [len(text).to_bytes(8, "little"), text]
    chunks += [_little_endian(tensors[name]).tobytes() for name in names]
    write_whole(path, chunks, overwrite=overwrite)


def write_whole(
    path: str | os.PathLike[str], chunks: list[bytes], *, overwrite: bool = False
) -> None:
    """Write a file through a neighbour that takes its name only when it is complete.

    Raises:
        FileExistsError: The path exists and `overwrite` is False.
    """
    path = Path(path)
    if not overwrite and path.exists():
        raise FileExistsError(f"{path} exists; pass overwrite=True to replace it")
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with open(partial, "xb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            os.replace(partial, path)
        else:
            # Unlike replacing, linking fails if somebody else has taken the name meanwhile.
            os.link(partial, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()


def _read(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    data = path.read_bytes()
    try:
        # The library checks the header against the file: offsets, gaps, overlaps, lengths.
        entries = dict(safetensors.deserialize(data))  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        raise _damaged(path, error) from error
    length = int.from_bytes(data[:8], "little")
    header = _strict_json(path, data[8 : 8 + length].decode())
    tensors = {}
    for name in (name for name in header if name in entries):  # in the file's own order
        entry = entries[name]
        if entry["dtype"] not in _CODES:
            raise WeightsError(
                f"{path} holds arrays that numpy can hold",
                got=f"{name} {entry['dtype']}",
                expected=", ".join(_CODES),
            )
        dtype = _CODES[entry["dtype"]]
        array = np.frombuffer(bytes(entry["data"]), dtype.newbyteorder("<"))
        tensors[name] = array.reshape(entry["shape"]).astype(dtype, copy=False)
    return tensors, dict(header.get("__metadata__") or {})


def _little_endian(array: Array) -> Array:
    return array.byteswap() if sys.byteorder == "big" else array


def _damaged(path: object, error: Exception) -> WeightsError:
    return WeightsError(
        f"{path} must be a whole safetensors file",
        got=str(error),
        expected="an undamaged one; other kinds of files go through relpos.weights.read_arrays",
    )


def _strict_json(path: object, text: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise WeightsError(
                f"{path} names everything once", got=f"{', '.join(twice)} twice", expected="once"
            )
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=unique)
    except (json.JSONDecodeError, RecursionError) as error:
        raise WeightsError(
            f"{path} describes itself in JSON", got=str(error), expected="a JSON object"
        ) from error
    if not isinstance(value, dict):
        raise WeightsError(
            f"{path} describes itself in JSON", got=type(value).__name__, expected="a JSON object"
        )
    return value


def _parse_layers(path: object, text: str) -> dict[str, AttentionSettings]:
    layers = {}
    for name, stored in _strict_json(path, text).items():
        try:
            layers[name] = read_stored_settings(stored)
        except SettingError as error:
            raise WeightsError(
                f"{path} must hold possible settings for layer {name!r}",
                got=str(error).removesuffix("."),
                expected="what AttentionSettings.to_dict gives",
            ) from error
    return layers
