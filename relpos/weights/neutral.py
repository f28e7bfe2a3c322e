"""The neutral form: named numpy arrays and the settings of the layers they belong to.

A layer has a path, for example `encoder.0`; a single layer alone has the path "". The parameters of
a layer are those of `AttentionSettings.parameters`, with the same names and shapes, so

    tensors["encoder.0.query.kernel"]    [D, H, d] of the layer `encoder.0`
    tensors["query.kernel"]              [D, H, d] of a single layer
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from relpos.errors import WeightsError
from relpos.schemes import Parameter
from relpos.settings import AttentionSettings
from relpos.weights.problems import Problems

__all__ = ["FLOAT_DTYPES", "Array", "Weights", "joined_path", "natural_order"]

Array = NDArray[Any]

#: The dtypes of learned numbers that every part of this package carries bit for bit.
FLOAT_DTYPES: dict[str, np.dtype[Any]] = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}

_PATH = re.compile(r"[^./\s]+(\.[^./\s]+)*")


def joined_path(path: str, name: str) -> str:
    """`path.name`, or the one that is not empty."""
    return f"{path}.{name}" if path and name else path or name


def natural_order(path: str) -> list[tuple[int, int, str]]:
    """Sort key that puts `layer.10` after `layer.9`."""
    parts = re.split(r"(\d+)", path)
    return [(1, int(part), part) if part.isdecimal() else (0, 0, part) for part in parts]


@dataclass(frozen=True, eq=False)
class Weights:
    """The learned numbers of one or several relative attention layers, and their settings.

    Arrays are held read-only and not copied; every function of `relpos.weights` that makes a
    `Weights` from something else copies. Two `Weights` are equal if their settings are and every
    array has the same dtype, shape and bits (a NaN equals the same NaN; -0.0 is not 0.0).

    Attributes:
        layers: Settings by layer path: parts without dots or slashes, joined by dots. A single
            layer may have the path "" and then stands alone.
        tensors: Arrays by `path.parameter`: exactly the parameters of all layers, in bfloat16,
            float16, float32 or float64.

    Raises:
        WeightsError: Lists every impossible path and every missing, unexpected, misshapen or
            mistyped array at once.

    Example:
        >>> from relpos import AttentionSettings, NoPosition
        >>> settings = AttentionSettings(6, 3, NoPosition(), bias=False)
        >>> tensors = {p.name: np.zeros(p.shape, np.float32) for p in settings.parameters()}
        >>> Weights({"": settings}, tensors)
        Weights(1 layer, 4 tensors, 144 numbers)
    """

    layers: Mapping[str, AttentionSettings]
    tensors: Mapping[str, Array]

    def __post_init__(self) -> None:
        problems = Problems()
        for path in self.layers:
            if path == "" and len(self.layers) > 1:
                problems.add("impossible path", "'' beside other layers")
            elif path != "" and not _PATH.fullmatch(path):
                problems.add("impossible path", repr(path))
        if not self.layers:
            problems.add("missing", "at least one layer")
        tensors = {name: np.asarray(array) for name, array in self.tensors.items()}
        expected = {
            joined_path(path, parameter.name): parameter
            for path, settings in self.layers.items()
            for parameter in settings.parameters()
        }
        for name, parameter in expected.items():
            if name not in tensors:
                problems.add("missing", f"{name} {list(parameter.shape)}")
            elif tensors[name].shape != parameter.shape:
                shape = list(tensors[name].shape)
                problems.add("misshapen", f"{name} {shape} for {list(parameter.shape)}")
        for name, array in tensors.items():
            if name not in expected:
                problems.add("unexpected", f"{name} {list(array.shape)}")
            elif array.dtype not in FLOAT_DTYPES.values():
                problems.add("mistyped", f"{name} {array.dtype}")
        problems.check(
            "weights hold exactly the parameters of their layers",
            expected="each parameter of AttentionSettings.parameters() once, with its shape, as "
            + ", ".join(FLOAT_DTYPES),
        )
        # In the order of the settings, so that equal weights list and save alike.
        ordered = {name: tensors[name].view() for name in expected}
        for array in ordered.values():
            array.setflags(write=False)
        object.__setattr__(self, "layers", MappingProxyType(dict(self.layers)))
        object.__setattr__(self, "tensors", MappingProxyType(ordered))

    @property
    def settings(self) -> AttentionSettings:
        """The settings of a single layer, path ""."""
        if "" not in self.layers:
            raise WeightsError(
                "one layer is wanted here",
                got=f"the layers {', '.join(self.layers)}",
                expected="weights.layer(path) of one of them",
            )
        return self.layers[""]

    def parameters(self) -> Iterator[tuple[str, Parameter, Array]]:
        """Layer path, parameter and array, layer by layer."""
        for path, settings in self.layers.items():
            for parameter in settings.parameters():
                yield path, parameter, self.tensors[joined_path(path, parameter.name)]

    def layer(self, path: str) -> Weights:
        """One layer alone, under the path ""."""
        if path not in self.layers:
            raise WeightsError(
                "a layer is named by its path", got=repr(path), expected=f"one of {[*self.layers]}"
            )
        settings = self.layers[path]
        tensors = {p.name: self.tensors[joined_path(path, p.name)] for p in settings.parameters()}
        return Weights({"": settings}, tensors)

    @staticmethod
    def join(parts: Mapping[str, Weights]) -> Weights:
        """Several weights as one, each under the path that names it.

        Example:
            >>> from relpos import AttentionSettings, NoPosition
            >>> settings = AttentionSettings(2, 1, NoPosition(), bias=False)
            >>> one = Weights({"": settings}, {p.name: np.ones(p.shape)
            ...                                for p in settings.parameters()})
            >>> list(Weights.join({"encoder.0": one, "encoder.1": one}).layers)
            ['encoder.0', 'encoder.1']
        """
        layers: dict[str, AttentionSettings] = {}
        tensors: dict[str, Array] = {}
        for outer, part in parts.items():
            for inner, settings in part.layers.items():
                path = joined_path(outer, inner)
                if path in layers:
                    raise WeightsError(
                        "every layer has a path of its own",
                        got=f"{path!r} twice",
                        expected="different paths",
                    )
                layers[path] = settings
            tensors |= {joined_path(outer, name): array for name, array in part.tensors.items()}
        return Weights(layers, tensors)

    def astype(self, dtype: Any) -> Weights:
        """The same weights in another dtype: the one place where numbers may be rounded."""
        return Weights(self.layers, {n: array.astype(dtype) for n, array in self.tensors.items()})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Weights):
            return NotImplemented
        return dict(self.layers) == dict(other.layers) and all(
            array.dtype == other.tensors[name].dtype
            and array.tobytes() == other.tensors[name].tobytes()
            for name, array in self.tensors.items()
        )

    __hash__ = None  # type: ignore[assignment]  # arrays have no hash

    def __repr__(self) -> str:
        numbers = sum(array.size for array in self.tensors.values())
        plural = "" if len(self.layers) == 1 else "s"
        return (
            f"Weights({len(self.layers)} layer{plural}, {len(self.tensors)} tensors, "
            f"{numbers} numbers)"
        )
