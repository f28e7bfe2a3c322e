"""What foreign names and shapes tell: which layers are there, and their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from relpos.errors import WeightsError
from relpos.schemes import Scheme
from relpos.settings import AttentionSettings
from relpos.weights.layout import KERNELS, Layout
from relpos.weights.layouts import LAYOUTS, as_layout
from relpos.weights.neutral import Array, natural_order
from relpos.weights.steps import source_axes

__all__ = ["OPTIONS", "LayoutMatch", "below", "find_layouts", "layers_in", "read_settings"]

#: Name of a layout, the prefix below which it matches, and the paths of the layers it finds there.
LayoutMatch = tuple[str, str, tuple[str, ...]]

#: Arguments of `read_settings` -> the option of `relpos convert`.
OPTIONS = {"num_heads": "--heads", "num_kv_heads": "--kv-heads", "scheme": "--scheme"}

_ARGUMENTS = {"heads": "num_heads", "kv_heads": "num_kv_heads"}


def below(source: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The arrays whose names begin with `prefix`, by the rest of their names."""
    return {
        name.removeprefix(prefix): array
        for name, array in source.items()
        if name.startswith(prefix)
    }


def layers_in(source: Iterable[str], layout: Layout | str, *, prefix: str = "") -> tuple[str, ...]:
    """Paths of the layers that `source` holds in this layout, complete or not.

    Raises:
        WeightsError: There is none; says under which prefix there would be.

    Example:
        >>> names = ["enc.attn_layers.10.conv_q.bias", "enc.attn_layers.9.conv_q.bias"]
        >>> layers_in(names, "vits", prefix="enc.")
        ('9', '10')
    """
    layout, source = as_layout(layout), list(source)
    names = [name.removeprefix(prefix) for name in source if name.startswith(prefix)]
    # An entry for any parameter would match any name at all.
    entries = [entry for entry in layout.entries if entry.target != "{parameter}"]
    found = {
        layout.path_of(match)
        for pattern in (layout.pattern(entry.source) for entry in entries)
        for match in map(pattern.fullmatch, names)
        if match is not None
    }
    if not found:
        prefixes = [at for name, at, _ in find_layouts(source) if name == layout.name]
        raise WeightsError(
            f"the source must hold a layer in the layout {layout.name}",
            got=f"{len(names)} names that begin with {prefix!r}, none as in that layout",
            expected=" or ".join(f"prefix {at!r}" for at in prefixes)
            or f"names such as {entries[0].source}",
        )
    return tuple(sorted(found, key=natural_order))


def find_layouts(source: Iterable[str]) -> list[LayoutMatch]:
    """The layouts that match the names in `source`.

    A layout matches if some layer has all four projections by its names. Only names are looked at:
    whether the shapes fit, `convert` tells.

    Example:
        >>> find_layouts(f"decoder.3.{name}.weight" for name in ("query", "key", "value", "out"))
        [('relpos-torch', '', ('decoder.3',))]
    """
    names = list(source)
    matches: list[LayoutMatch] = []
    for layout in LAYOUTS.values():
        found: list[set[tuple[str, str]]] = []
        for kernel in KERNELS:
            entry = layout.entry(kernel)
            pattern = layout.pattern(entry.source, any_prefix=True) if entry else None
            hits = map(pattern.fullmatch, names) if pattern else ()
            found.append({(hit["prefix"], layout.path_of(hit)) for hit in hits if hit})
        complete = set.intersection(*found)
        for prefix in sorted({prefix for prefix, _ in complete}):
            layers = sorted((path for at, path in complete if at == prefix), key=natural_order)
            matches.append((layout.name, prefix, tuple(layers)))
    return matches


def read_settings(
    source: Mapping[str, Array],
    layout: Layout | str,
    *,
    num_heads: int | None = None,
    scheme: Scheme | None = None,
    num_kv_heads: int | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
    prefix: str = "",
) -> dict[str, AttentionSettings]:
    """Settings of every layer in `source`: sizes from the shapes, the rest from the caller.

    Args:
        source: Arrays by foreign name; only names and shapes are looked at.
        layout: How they are named and shaped, or its name in `LAYOUTS`.
        num_heads: Query heads H; needed where the shapes do not tell them.
        scheme: The relative position scheme; needed unless the layout always means one.
        num_kv_heads: Key heads G; the shapes tell them once H is known, and must agree.
        causal: As in `AttentionSettings`; weights never tell.
        dropout: As in `AttentionSettings`; weights never tell.
        scale: As in `AttentionSettings`; weights never tell.
        prefix: What the names of the part to read begin with.

    Raises:
        WeightsError: An argument that the weights do not tell is missing, or contradicts them.

    Example:
        >>> from relpos import NoPosition
        >>> names = ("query", "key", "value", "out")
        >>> source = {f"{name}.weight": np.ones((6, 6)) for name in names}
        >>> read_settings(source, "relpos-torch", num_heads=3, scheme=NoPosition())[""].width
        2
    """
    layout = as_layout(layout)
    inside = below(source, prefix)
    given = {"heads": num_heads, "kv_heads": num_kv_heads}
    result = {}
    for path in layers_in(source, layout, prefix=prefix):
        shapes = {
            entry.target: np.shape(inside[name])
            for entry in layout.entries
            if "{parameter}" not in entry.source
            and (name := layout.source_name(entry, path, "")) in inside
        }
        sizes = {axis: size for axis, size in given.items() if size is not None}
        for kernel, axis in (("query.kernel", "heads"), ("key.kernel", "kv_heads")):
            _solve(layout, prefix, path, kernel, ("embed", axis, "head_dim"), shapes, sizes)
        heads, width = sizes["heads"], sizes["head_dim"]
        result[path] = AttentionSettings(
            embed_dim=sizes["embed"],
            num_heads=heads,
            scheme=_scheme(layout, path, scheme, shapes),
            num_kv_heads=None if sizes["kv_heads"] == heads else sizes["kv_heads"],
            head_dim=None if sizes["embed"] == heads * width else width,
            bias="query.bias" in shapes,
            causal=causal,
            dropout=dropout,
            scale=scale,
        )
    return result


def _solve(
    layout: Layout,
    prefix: str,
    path: str,
    kernel: str,
    axes: tuple[str, ...],
    shapes: Mapping[str, tuple[int, ...]],
    sizes: dict[str, int],
) -> None:
    """Complete `sizes` from the foreign shape of one kernel: one unknown factor per axis."""
    entry = layout.entry(kernel)
    if entry is None or kernel not in shapes:
        name = layout.source_name(entry, path, kernel) if entry else kernel
        raise WeightsError(
            "the sizes of a layer are read off its query and key kernels",
            got=f"layer {path!r} without {prefix}{name}",
            expected="that array",
        )
    name, shape = prefix + layout.source_name(entry, path, kernel), shapes[kernel]
    foreign = source_axes(entry.steps, axes)
    fits = len(shape) == len(foreign)
    for factors, length in zip(foreign, shape, strict=False):
        known = 1
        unknown = [factor for factor in factors if factor not in sizes]
        for factor in factors:
            known *= sizes.get(factor, 1)
        if len(unknown) > 1:
            raise _argument_missing(layout, _ARGUMENTS[unknown[0]])
        fits = fits and known > 0 and (length % known == 0 if unknown else length == known)
        if fits and unknown:
            sizes[unknown[0]] = length // known
    if not fits or 0 in shape:
        known_sizes = ", ".join(f"{axis} {size}" for axis, size in sizes.items())
        raise WeightsError(
            f"{name} is [{', '.join(' * '.join(factors) or '1' for factors in foreign)}]",
            got=f"{list(shape)} with {known_sizes}",
            expected="a shape that these numbers divide, or other numbers",
        )


def _scheme(
    layout: Layout, path: str, given: Scheme | None, shapes: Mapping[str, tuple[int, ...]]
) -> Scheme:
    if layout.read_scheme is None:
        if given is None:
            raise _argument_missing(layout, "scheme")
        return given
    meant = layout.read_scheme(shapes)
    if given is not None and given != meant:
        raise WeightsError(
            f"layer {path} in the layout {layout.name} means {meant}",
            got=str(given),
            expected="that scheme, or none: this layout tells it",
        )
    return meant


def _argument_missing(layout: Layout, argument: str) -> WeightsError:
    why = layout.arguments.get(argument, "weights do not tell")
    return WeightsError(
        f"the layout {layout.name} needs {argument} from the caller: {why}",
        got="None",
        expected=f"{argument}=..., on the command line {OPTIONS[argument]}",
    )
