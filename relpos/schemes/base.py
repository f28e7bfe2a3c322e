"""What every scheme states about itself, without any framework."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from relpos.errors import SettingError

__all__ = [
    "Init",
    "Parameter",
    "Projection",
    "Scheme",
    "Settings",
    "Tied",
    "check_types",
    "constant",
    "each",
    "glorot",
    "normal",
    "require",
    "restored",
    "uniform",
    "zeros",
]


@dataclass(frozen=True)
class Init:
    """The distribution of a fresh parameter.

    Attributes:
        kind: `zeros`, `constant`, `each`, `normal` (mean 0) or `uniform` (symmetric about 0).
        scale: The number itself of `constant`, standard deviation of `normal`, half width of
            `uniform`; unused by `zeros` and `each`.
        values: Of `each`: a number for every entry of the first axis, all along the others.
    """

    kind: Literal["zeros", "constant", "each", "normal", "uniform"]
    scale: float = 0.0
    values: tuple[float, ...] = ()

    @property
    def std(self) -> float:
        """Standard deviation of a fresh entry."""
        if self.kind == "uniform":
            return self.scale / math.sqrt(3.0)
        return self.scale if self.kind == "normal" else 0.0

    def draw(self, generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """A fresh array for whoever has neither framework."""
        if self.kind == "normal":
            return generator.normal(0.0, self.scale, shape)
        if self.kind == "uniform":
            return generator.uniform(-self.scale, self.scale, shape)
        if self.kind == "each":
            return self.laid_out(shape)
        return np.full(shape, self.scale if self.kind == "constant" else 0.0)

    def laid_out(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """The values of `each` over a whole array."""
        first = np.reshape(self.values, (shape[0], *(1,) * (len(shape) - 1)))
        return np.broadcast_to(first, shape).astype(np.float64)

    def times(self, factor: float) -> Init:
        """The distribution of `factor` times an entry."""
        values = tuple(factor * value for value in self.values)
        return Init(self.kind, self.scale * factor, values)


def zeros() -> Init:
    """All zeros, on purpose."""
    return Init("zeros")


def constant(value: float) -> Init:
    """Every entry the same number."""
    return Init("constant", value)


def each(values: tuple[float, ...]) -> Init:
    """A number of its own for every entry of the first axis."""
    return Init("each", values=values)


def normal(std: float) -> Init:
    """Normal with mean 0 and the given standard deviation."""
    return Init("normal", std)


def uniform(half_width: float) -> Init:
    """Uniform on +-half_width."""
    return Init("uniform", half_width)


def glorot(fan_in: int, fan_out: int) -> Init:
    """Uniform on +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010)."""
    return Init("uniform", math.sqrt(6.0 / (fan_in + fan_out)))


#: Axes along which entries are looked up one by one; along all others they are vectors or matrices.
INDEX_AXES = frozenset({"heads", "kv_heads", "shared", "distance", "bucket"})


#: Arrays of a layer that a scheme's parameter may be.
Tied = Literal["query.kernel", "query.bias", "key.kernel", "key.bias"]


@dataclass(frozen=True)
class Parameter:
    """One learned array: the same name and shape in every framework.

    Attributes:
        name: Name below the layer, for example `key_table`.
        axes: Logical name of each axis: `embed`, `heads`, `kv_heads`, `head_dim`, `distance`,
            `bucket`, `hidden`, `features`, or `shared` for an axis of length 1 that all heads
            share. A scheme's parameter begins with `heads` or `shared`.
        shape: Length of each axis.
        init: Distribution of a fresh parameter.
        tied: The layer's own array that this one is in a layer, heads first; None is an array of
            its own.
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    init: Init
    tied: Tied | None = None

    def __post_init__(self) -> None:
        if len(self.axes) != len(self.shape):
            raise SettingError(
                f"parameter {self.name!r} needs one name per axis",
                got=f"axes {self.axes} with shape {self.shape}",
                expected="equally many of both",
            )

    @property
    def rank(self) -> int:
        """Trailing axes that belong together: 0 for a table of numbers, 1 for one of vectors."""
        indices = [n for n, axis in enumerate(self.axes) if axis in INDEX_AXES]
        return len(self.axes) - 1 - max(indices, default=-1)


@dataclass(frozen=True)
class Projection:
    """How a layer makes what a scheme reads of each token, beside q and k: x W + b.

    Attributes:
        name: Its parameters are `{name}_kernel` and `{name}_bias`.
        width: Numbers per head and token, e.
        bias: Add a learned bias.
        bias_init: Distribution of a fresh bias; None is zeros.
        per_head: Each head reads its own D / H channels of x, through one kernel [D/H, e] that all
            heads share; False reads all of x, through a kernel [D, H, e].
        empty: What an empty slot of a cache holds.
    """

    name: str
    width: int
    bias: bool = True
    bias_init: Init | None = None
    per_head: bool = False
    empty: float = 0.0

    def parameters(self, embed_dim: int, num_heads: int) -> tuple[Parameter, ...]:
        """`{name}_kernel` [D, H, e] and `{name}_bias` [H, e]; [D/H, e] and [e] if `per_head`."""
        axes: tuple[str, ...] = ("embed", "heads", "features")
        shape: tuple[int, ...] = (embed_dim, num_heads, self.width)
        fan_out = num_heads * self.width
        if self.per_head:
            require(
                embed_dim % num_heads == 0,
                f"{self.name} reads an equal part of the input in every head",
                got=f"embed_dim={embed_dim}, num_heads={num_heads}",
                expected=f"a multiple of {num_heads}",
            )
            axes, shape = ("embed", "features"), (embed_dim // num_heads, self.width)
            fan_out = self.width
        table = [Parameter(f"{self.name}_kernel", axes, shape, glorot(shape[0], fan_out))]
        if self.bias:
            table.append(
                Parameter(f"{self.name}_bias", axes[1:], shape[1:], self.bias_init or zeros())
            )
        return tuple(table)


def require(condition: bool, rule: str, *, got: object, expected: object) -> None:
    """Raise `SettingError` unless `condition` holds."""
    if not condition:
        raise SettingError(rule, got=got, expected=expected)


def check_types(settings: Any, owner: str) -> None:
    """Raise `SettingError` unless every field of a dataclass has the type it is declared with.

    A number where a switch belongs, or "false" for False, would pass for true without a word.
    """
    hints = _hints(settings.__class__)
    for field in dataclasses.fields(settings):
        value, hint = getattr(settings, field.name), hints[field.name]
        require(
            _is_a(value, hint),
            f"{owner}.{field.name} must have its declared type",
            got=repr(value),
            expected=hint.__name__ if isinstance(hint, type) else str(hint),
        )


@functools.cache
def _hints(kind: type[object]) -> dict[str, Any]:
    return get_type_hints(kind)


def _is_a(value: object, hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(_is_a(value, option) for option in get_args(hint))
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_is_a(v, get_args(hint)[0]) for v in value)
    if hint is float and isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= sys.float_info.max
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def restored(kind: Any, data: Mapping[str, Any]) -> Any:
    """A dataclass of settings from plain JSON types: lists become tuples, and nested settings are
    found by their name.

    Raises:
        SettingError: Nested settings are unknown, or do not take what they are given.
    """
    hints = _hints(kind)
    return kind(**{name: _restored(name, value, hints[name]) for name, value in data.items()})


def _restored(field: str, value: Any, hint: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, dict):
        return value
    options = {option.name: option for option in get_args(hint) if hasattr(option, "name")}
    given = {key: entry for key, entry in value.items() if key != "name"}
    kind = options.get(value.get("name"))
    require(
        kind is not None,
        f"{field} must be known by name",
        got=value.get("name"),
        expected=sorted(options),
    )
    assert kind is not None
    fields = dataclasses.fields(kind)
    needed = {setting.name for setting in fields if setting.default is dataclasses.MISSING}
    require(
        needed <= given.keys() <= {setting.name for setting in fields},
        f"{kind.name} takes its own settings, and those without a default must be given",
        got=sorted(given),
        expected=[setting.name for setting in fields],
    )
    return restored(kind, given)


def _plain(value: Any) -> Any:
    """The inverse of `restored`, for one setting."""
    if isinstance(value, Settings):
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"name": value.name, **fields}
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Settings:
    """Base of settings that stand inside a scheme's own, such as RoPE's scaling."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        """Refuse a field of another type; a kind with more to say overrides and extends this."""
        check_types(self, self.name)


@dataclass(frozen=True)
class Scheme:
    """Base of every scheme: frozen settings, validated on construction.

    A scheme states what it is (settings, parameters, scale, allowed distances). How it is
    computed stands in `relpos_torch.schemes`, `relpos_jax.schemes` and `relpos.oracle`.
    """

    name: ClassVar[str]
    #: The work that proposed it, as one cites it: "Shaw et al., 2018".
    paper: ClassVar[str]
    #: Where that work is to be read; the docstring names its title and further ones.
    url: ClassVar[str]
    #: Public checkpoints, or families of them, that use it; empty where we know of none.
    used_by: ClassVar[tuple[str, ...]]
    #: A paper that the docstring names measures that it works beyond the lengths trained on.
    extrapolates: ClassVar[bool]
    #: Defined for keys up to the query alone, j <= i.
    causal_only: ClassVar[bool] = False
    #: Its scores are no sum of terms by pair, so that only the kernel `dense` computes them.
    dense_only: ClassVar[bool] = False
    #: Positions only turn queries and keys; no term is added to scores or values.
    content_only: ClassVar[bool] = False
    #: The scheme's score and output depend on positions through j - i alone.
    translation_invariant: ClassVar[bool] = True

    @classmethod
    def kernels(cls) -> tuple[str, ...]:
        """The kernels that can compute it; `fused` is in PyTorch alone."""
        if cls.dense_only:
            return ("dense",)
        return ("dense", "blockwise", "fused") if cls.content_only else ("dense", "blockwise")

    def __post_init__(self) -> None:
        """Refuse a field of another type; a scheme with more to say overrides and extends this."""
        check_types(self, self.name)

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """The scheme's learned arrays for `num_heads` heads of width `head_dim`.

        Each begins with an axis `heads`, or `shared` of length 1.
        """
        raise NotImplementedError

    def scale(self, head_dim: int) -> float:
        """The factor on <q, k> when the caller names none: 1 / sqrt(head_dim)."""
        return 1.0 / math.sqrt(head_dim)

    def check_head_dim(self, head_dim: int) -> None:
        """Raise `SettingError` if heads of this width cannot carry the scheme."""

    def check_layer(self, embed_dim: int, num_heads: int) -> None:
        """Raise `SettingError` if a layer of this width cannot carry the scheme."""

    @property
    def query_projection(self) -> Projection | None:
        """What the scheme reads of each query's token beside q, if anything."""
        return None

    @property
    def key_projection(self) -> Projection | None:
        """What the scheme reads of each key's token beside k, if anything."""
        return None

    @property
    def position_axes(self) -> int:
        """How many axes positions may have; with more than one they are [B or 1, L, A]."""
        return 1

    @property
    def limits(self) -> tuple[int, int] | None:
        """The distances (lowest, highest) beyond which the scheme has no value, if any."""
        return None

    @property
    def position_limits(self) -> tuple[int, int] | None:
        """The positions (lowest, highest) beyond which the scheme has no value, if any."""
        return None

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain JSON types, with the scheme's name."""
        fields = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {"scheme": self.name, **fields}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; unknown and missing settings are errors."""
        given = {key: value for key, value in data.items() if key != "scheme"}
        known = {field.name for field in dataclasses.fields(cls)}
        require(
            set(given) == known and data.get("scheme") == cls.name,
            f"stored settings of {cls.name} must name the scheme and every field once",
            got=sorted(data),
            expected=["scheme", *sorted(known)],
        )
        scheme: Self = restored(cls, given)
        require(
            scheme.to_dict() == data,
            f"stored settings of {cls.name} must name every field of nested settings too",
            got=data,
            expected=scheme.to_dict(),
        )
        return scheme
