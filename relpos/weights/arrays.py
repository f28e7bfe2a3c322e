"""Named arrays out of other people's files. Nothing is ever executed from them."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from relpos.errors import WeightsError
from relpos.weights.files import read_safetensors
from relpos.weights.framework_arrays import array_from_torch
from relpos.weights.neutral import Array
from relpos.weights.optional import need

__all__ = ["READERS", "read_arrays"]


def read_arrays(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays in a file, by name.

    The suffix says what it is: `.safetensors`; `.onnx`, its initialisers; `.npz`, without pickled
    objects; `.pt`, `.pth` or `.bin`, a torch file of tensors, possibly in nested dicts whose keys
    are joined by dots. What is not a tensor there (a step count, a learning rate) is no weight and
    not returned.

    Raises:
        WeightsError: The suffix is unknown, or the file is damaged, holds no arrays, holds pickled
            objects, or refers to another file.
        FileNotFoundError: There is no such file.
        ModuleNotFoundError: The package that reads it is not installed: onnx or torch.
    """
    path = Path(path)
    if path.suffix not in READERS:
        raise WeightsError(
            "weights are read from files of certain kinds, told by the suffix",
            got=str(path),
            expected=", ".join(READERS),
        )
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    arrays = READERS[path.suffix](path)
    if not arrays:
        raise WeightsError(f"{path} holds arrays", got="none", expected="at least one")
    return arrays


# What zipfile and numpy raise for damaged, encrypted or hostile archives: a header may claim a size
# that no memory holds.
_BAD_NPZ = (
    ValueError,
    KeyError,
    OSError,
    EOFError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)


def _read_npz(path: Path) -> dict[str, Array]:
    try:
        # numpy would leave a file that it opened itself open when the archive is damaged.
        with open(path, "rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("a single array without a name")
            arrays = {name: np.asarray(archive[name]) for name in archive.files}
    except _BAD_NPZ as error:
        raise _damaged(path, "an .npz file of plain arrays", error) from error
    return {name: a.astype(a.dtype.newbyteorder("="), copy=False) for name, a in arrays.items()}


def _read_onnx(path: Path) -> dict[str, Array]:
    onnx = need("onnx", "demo")
    try:
        # Tensors in other files are refused below: a model may name any path it likes.
        model = onnx.load(str(path), load_external_data=False)
    except need("google.protobuf.message", "demo").DecodeError as error:
        raise _damaged(path, "an ONNX model", error) from error
    arrays: dict[str, Array] = {}
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise WeightsError(
                f"{path} holds its own arrays",
                got=f"{tensor.name} in another file",
                expected="an ONNX model in one file",
            )
        if tensor.name in arrays:
            raise WeightsError(
                f"{path} names everything once", got=f"{tensor.name} twice", expected="once"
            )
        try:
            arrays[tensor.name] = np.asarray(onnx.numpy_helper.to_array(tensor))
        except (ValueError, TypeError, KeyError) as error:
            raise _damaged(path, f"an ONNX model, initialiser {tensor.name}", error) from error
    return arrays


def _read_torch(path: Path) -> dict[str, Array]:
    torch = need("torch", "torch")
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    # Bytes that somebody else chose go through a restricted unpickler, whose opcodes may raise
    # anything at all; each of them means that the file is not a file of tensors.
    except Exception as error:
        raise _damaged(path, "a torch file of tensors alone", error) from error
    arrays: dict[str, Array] = {}
    try:
        _collect(stored, (), arrays, path)
    except RecursionError as error:
        raise _damaged(path, "a torch file of tensors in a few levels", error) from error
    return arrays


def _collect(value: Any, at: tuple[str, ...], arrays: dict[str, Array], path: Path) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _collect(inner, (*at, str(key)), arrays, path)
    elif isinstance(value, need("torch", "torch").Tensor):
        name = ".".join(at)
        if name in arrays:
            raise WeightsError(
                f"{path} names everything once", got=f"{name} twice", expected="once"
            )
        arrays[name] = array_from_torch(value)


def _damaged(path: Path, what: str, error: Exception) -> WeightsError:
    first = str(error).strip().split("\n")[0] or type(error).__name__
    return WeightsError(f"{path} must be {what}", got=first, expected="an undamaged one")


#: Suffix -> reader.
READERS: dict[str, Callable[[Path], dict[str, Array]]] = {
    ".safetensors": read_safetensors,
    ".onnx": _read_onnx,
    ".npz": _read_npz,
    ".pt": _read_torch,
    ".pth": _read_torch,
    ".bin": _read_torch,
}
