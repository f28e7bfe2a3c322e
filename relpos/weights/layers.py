"""Weights into and out of layers, state dicts and flax trees: the everyday functions."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from relpos.errors import WeightsError
from relpos.settings import AttentionSettings
from relpos.weights.conversion import convert, export
from relpos.weights.files import load
from relpos.weights.framework_arrays import (
    array_from_jax,
    array_from_torch,
    jax_from_array,
    torch_from_array,
)
from relpos.weights.neutral import Array, Weights
from relpos.weights.optional import need
from relpos.weights.problems import Problems

if TYPE_CHECKING:
    import torch

__all__ = ["load_into", "to_flax", "to_neutral", "to_torch"]

Layer = TypeVar("Layer")
Settings = AttentionSettings | Mapping[str, AttentionSettings]


def to_neutral(source: Any, settings: Settings | None = None) -> Weights:
    """The neutral form of a layer, of a state dict or flax tree, or of a neutral file.

    Args:
        source: One of

            * `Weights`, returned as they are;
            * the path of a neutral file;
            * a `relpos_torch.RelativeAttention` or `relpos_jax.nnx.RelativeAttention`;
            * a pair of a `relpos_jax.linen.RelativeAttention` and its variables;
            * with `settings`: a torch state dict; or the tree that `to_flax` gives, linen variables
              or a pure dict of an nnx state, which holds the same.
        settings: Settings of the one layer, or of all layers by path, of a state dict or tree;
            None for everything else, which carries its own.

    Returns:
        Weights that share no memory with the source.

    Raises:
        WeightsError: The source is none of these, or does not fit its settings.
    """
    if isinstance(source, Mapping):
        if settings is None:
            raise WeightsError(
                "a state dict or tree does not tell its settings",
                got="settings=None",
                expected="to_neutral(tree, AttentionSettings(...)), or the layer itself",
            )
        return _from_mapping(source, settings)
    if settings is not None:
        raise WeightsError(
            "settings go with a state dict or tree; everything else carries its own",
            got=f"settings beside {type(source).__name__}",
            expected="settings=None",
        )
    if isinstance(source, Weights):
        return source
    if isinstance(source, str | os.PathLike):
        return load(source)
    if _is_torch_module(source):
        return _from_mapping(source.state_dict(), _settings_of(source))
    if _is_nnx_module(source):
        arrays = {name: array_from_jax(p[...]) for name, p in _nnx_parameters(source).items()}
        return _fit(arrays, "relpos-nnx", _settings_of(source))
    if isinstance(source, tuple) and len(source) == 2 and _is_linen_module(source[0]):
        return _from_mapping(source[1], _settings_of(source[0]))
    raise _unknown_source(source)


def to_torch(source: Any, settings: Settings | None = None) -> dict[str, torch.Tensor]:
    """The state dict of `relpos_torch.RelativeAttention`, in fresh tensors on the CPU.

    Args:
        source: As in `to_neutral`. Several layers give one state dict, names led by their paths.
        settings: As in `to_neutral`.

    Returns:
        `query.weight` [H*d, D], `query.bias` [H*d], `key.*` and `value.*` [G*d, ...], `out.weight`
        [D, H*d], `out.bias` [D], and the scheme's tables as they are.

    Raises:
        WeightsError: As `to_neutral`.
        ModuleNotFoundError: torch is not installed.
    """
    arrays, _ = export(to_neutral(source, settings), "relpos-torch")
    return {name: torch_from_array(array) for name, array in arrays.items()}


def to_flax(source: Any, settings: Settings | None = None) -> dict[str, Any]:
    """The parameters of the flax layers as a nested dict of fresh jax arrays.

    The same tree serves both flax interfaces: `module.apply({"params": tree}, x)` in linen, and
    `load_into` or a pure dict of the `nnx.Param` state in nnx.

    Args:
        source: As in `to_neutral`. Several layers give one tree, nested by the parts of the paths.
        settings: As in `to_neutral`.

    Returns:
        `{"query": {"kernel": [D, H, d], "bias": [H, d]}, ..., "key_table": ...}`.

    Raises:
        WeightsError: As `to_neutral`; or the weights are float64 and jax would round them.
        ModuleNotFoundError: jax is not installed.
    """
    arrays, _ = export(to_neutral(source, settings), "relpos-linen")
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *parents, leaf = name.removeprefix("params/").split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = jax_from_array(array)
    return tree


def load_into(layer: Layer, source: Any) -> Layer:
    """Put weights into a torch or nnx layer, all of them or none.

    Args:
        layer: A `relpos_torch.RelativeAttention` or `relpos_jax.nnx.RelativeAttention`.
        source: As in `to_neutral`, a single layer with its settings; a state dict or tree is taken
            to have the layer's.

    Returns:
        The same layer, changed in place. Its parameters keep their dtype and device. An nnx layer
        may be one of `nnx.eval_shape`, which has drawn nothing yet.

    Raises:
        WeightsError: Lists the settings that differ (all but dropout, which shapes nothing), or the
            arrays that do not fit, or would lose bits in the layer's dtype. The layer is untouched.
    """
    if _is_linen_module(layer):
        raise WeightsError(
            "a linen module holds no weights that could be replaced",
            got=type(layer).__name__,
            expected='variables = {"params": to_flax(source)}',
        )
    if not (_is_torch_module(layer) or _is_nnx_module(layer)):
        raise _unknown_source(layer)
    own = _settings_of(layer)
    weights = to_neutral(source, own if isinstance(source, Mapping) else None)
    problems = Problems()
    for name, (theirs, ours) in _differences(weights.settings, own).items():
        problems.add("different", f"{name} {theirs} in the weights, {ours} in the layer")
    problems.check(
        "weights go into a layer that computes the same function",
        expected="a layer built from the weights' own settings",
    )
    if _is_torch_module(layer):
        _fill_torch(layer, weights)
    else:
        _fill_nnx(layer, weights)
    return layer


def _fill_torch(layer: Any, weights: Weights) -> None:
    torch = need("torch", "torch")
    state, fresh = layer.state_dict(), to_torch(weights)
    widths = {name: tensor.dtype.itemsize for name, tensor in fresh.items()}
    problems = _misfits(state, fresh, widths)
    for name, tensor in state.items():
        if tensor.is_meta:
            problems.add("without data", f"{name} on device meta")
    stored: dict[int, str] = {}
    for name, tensor in state.items():
        other = stored.setdefault(tensor.data_ptr(), name)
        if other != name and not tensor.is_meta:
            problems.add("tied to one another", f"{other} and {name}")
    _check_fit(problems)
    with torch.no_grad():
        for name, tensor in fresh.items():
            state[name].copy_(tensor)


def _fill_nnx(layer: Any, weights: Weights) -> None:
    jax = need("jax", "jax")
    parameters = _nnx_parameters(layer)
    arrays, _ = export(weights, "relpos-nnx")
    _check_fit(_misfits(parameters, arrays, {n: a.dtype.itemsize for n, a in arrays.items()}))
    for name, parameter in parameters.items():
        old = parameter.get_value()
        fresh = jax_from_array(arrays[name].astype(old.dtype))
        # A layer of nnx.eval_shape holds shapes alone, and is filled where jax puts new arrays.
        parameter.set_value(jax.device_put(fresh, old.sharding))


def _misfits(
    places: Mapping[str, Any], fresh: Mapping[str, Any], widths: Mapping[str, int]
) -> Problems:
    """Compare names, shapes and dtypes: frameworks' own loaders accept some misfits silently."""
    problems = Problems()
    for name in places.keys() - fresh.keys():
        problems.add("missing", name)
    for name, value in fresh.items():
        if name not in places:
            problems.add("unexpected", name)
            continue
        place = places[name]
        if tuple(place.shape) != tuple(value.shape):
            problems.add("misshapen", f"{name} {list(value.shape)} for {list(place.shape)}")
        if place.dtype != value.dtype and place.dtype.itemsize <= widths[name]:
            problems.add("narrowed", f"{name} {value.dtype} into {place.dtype}")
    return problems


def _check_fit(problems: Problems) -> None:
    problems.check(
        "weights fit the parameters of the layer one by one and lose no bits there",
        expected="the same names and shapes, and the same dtype or a wider one "
        "(weights.astype rounds on purpose)",
    )


def _differences(a: AttentionSettings, b: AttentionSettings) -> dict[str, tuple[object, object]]:
    """What shapes or changes the function, resolved: head_dim=None may equal head_dim=64."""
    resolved = {
        "embed_dim": "embed_dim",
        "num_heads": "num_heads",
        "num_kv_heads": "kv_heads",
        "head_dim": "width",
        "scheme": "scheme",
        "bias": "bias",
        "causal": "causal",
        "scale": "score_scale",
    }
    pairs = {name: (getattr(a, at), getattr(b, at)) for name, at in resolved.items()}
    # d ** -0.5 and 1 / sqrt(d) may differ in their last bit and mean the same.
    if math.isclose(a.score_scale, b.score_scale, rel_tol=1e-12):
        del pairs["scale"]
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _from_mapping(source: Mapping[str, Any], settings: Settings) -> Weights:
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(value, torch.Tensor) for value in source.values()):
        arrays = {name: array_from_torch(tensor) for name, tensor in source.items()}
        return _fit(arrays, "relpos-torch", settings)
    tree = source.get("params", source)
    flat: dict[str, Array] = {}
    _flatten(tree, "params", flat)
    return _fit(flat, "relpos-linen", settings)


def _fit(arrays: Mapping[str, Array], layout: str, settings: Settings) -> Weights:
    layers = {"": settings} if isinstance(settings, AttentionSettings) else settings
    return convert(arrays, layout, layers)[0]


def _flatten(node: Any, at: str, flat: dict[str, Array]) -> None:
    if isinstance(node, Mapping):
        for key, inner in node.items():
            _flatten(inner, f"{at}/{key}", flat)
        return
    # flax boxes a parameter together with the names of its axes.
    node = node.unbox() if hasattr(node, "unbox") else node
    if at in flat:
        raise WeightsError("a tree names everything once", got=f"{at} twice", expected="once")
    flat[at] = array_from_jax(node)


def _settings_of(layer: Any) -> AttentionSettings:
    settings = getattr(layer, "settings", None)
    if not isinstance(settings, AttentionSettings):
        raise _unknown_source(layer)
    return settings


def _nnx_parameters(layer: Any) -> dict[str, Any]:
    nnx = need("flax.nnx", "jax")
    flat = nnx.to_flat_state(nnx.state(layer, nnx.Param))
    return {".".join(map(str, path)): parameter for path, parameter in flat}


# A layer can only be an instance of a class in a module that has been imported; looking there
# keeps torch out of a jax program and jax out of a torch program.
def _is_instance(value: object, module: str, name: str) -> bool:
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


def _is_torch_module(value: object) -> bool:
    return _is_instance(value, "torch.nn", "Module")


def _is_nnx_module(value: object) -> bool:
    return _is_instance(value, "flax.nnx", "Module")


def _is_linen_module(value: object) -> bool:
    return _is_instance(value, "flax.linen", "Module")


def _unknown_source(value: object) -> WeightsError:
    return WeightsError(
        "weights come from Weights, a neutral file, or a RelativeAttention of relpos_torch or "
        "relpos_jax",
        got=type(value).__module__ + "." + type(value).__qualname__,
        expected="one of these, not the model around it; for linen the pair (module, variables), "
        "since the module alone has no weights; for a state dict or tree "
        "its settings too",
    )
