"""From a foreign layout to the neutral form and back, refusing whatever does not fit.

Every source array is used once or dropped on purpose, every parameter is filled once, and every
fault is in one error. Numbers are moved, never computed with, so that A -> neutral -> A gives the
bits of A.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from relpos.schemes import Parameter
from relpos.settings import AttentionSettings
from relpos.weights.audit import Audit, AuditRow, fingerprint
from relpos.weights.layout import Drop, Layout
from relpos.weights.layouts import as_layout
from relpos.weights.neutral import FLOAT_DTYPES, Array, Weights, joined_path
from relpos.weights.problems import Problems
from relpos.weights.reading import below, layers_in
from relpos.weights.steps import Step, source_axes

__all__ = ["convert", "export"]


def convert(
    source: Mapping[str, Array],
    layout: Layout | str,
    settings: AttentionSettings | Mapping[str, AttentionSettings],
    *,
    prefix: str = "",
    drop: Iterable[str] = (),
) -> tuple[Weights, Audit]:
    """Read foreign arrays into the neutral form.

    Args:
        source: Arrays by foreign name; possibly those of a whole model.
        layout: How they are named and shaped, or its name in `LAYOUTS`.
        settings: Of every layer by its path, or one for all the layers that are there;
            `read_settings` makes them from the shapes and from what shapes do not tell.
        prefix: What the names of the part to convert begin with. All other names are outside: the
            audit lists them, and nothing else looks at them.
        drop: Patterns (see `Drop`) of further names below the prefix to leave behind on purpose.

    Returns:
        The weights, whose arrays share no memory with the source, and the audit.

    Raises:
        WeightsError: Lists everything missing, unexpected, misshapen or mistyped, and every buffer
            or scheme that contradicts the settings.

    Example:
        >>> from relpos import NoPosition
        >>> settings = AttentionSettings(6, 3, NoPosition(), bias=False)
        >>> names = ("query", "key", "value", "out")
        >>> source = {f"model.{name}.weight": np.ones((6, 6)) for name in names}
        >>> weights, audit = convert(source, "relpos-torch", settings, prefix="model.")
        >>> weights.tensors["query.kernel"].shape, audit.count("used")
        ((6, 3, 2), 4)
    """
    layout = as_layout(layout)
    rest = below(source, prefix)
    if isinstance(settings, AttentionSettings):
        layers = dict.fromkeys(layers_in(source, layout, prefix=prefix), settings)
    else:
        layers = dict(settings)
    problems = Problems()
    rows: list[AuditRow] = []
    tensors: dict[str, Array] = {}
    for own, parameter, name, steps in _places(layers, layout, problems):
        sizes = dict(zip(parameter.axes, parameter.shape, strict=True))
        wanted = tuple(
            math.prod(sizes[factor] for factor in axis)
            for axis in source_axes(steps, parameter.axes)
        )
        if name not in rest:
            problems.add("missing", f"{prefix}{name} {list(wanted)}")
            continue
        array = np.asarray(rest.pop(name))
        if array.shape != wanted:
            problems.add("misshapen", f"{prefix}{name} {list(array.shape)} for {list(wanted)}")
        elif array.dtype not in FLOAT_DTYPES.values():
            problems.add("mistyped", f"{prefix}{name} {array.dtype}")
        else:
            result = array
            for step in steps:
                result = step.forward(result, sizes)
            tensors[own] = np.array(result, order="C", copy=True)
            rows.append(_row(prefix + name, array, steps, own, parameter.shape))
    drops = (*layout.drops, *(Drop(pattern, "dropped by the caller") for pattern in drop))
    for name, value in rest.items():
        array = np.asarray(value)
        reason = _reason_to_drop(name, array, layout, drops, layers, prefix, problems)
        if reason is None:
            problems.add("unexpected", f"{prefix}{name} {list(array.shape)}")
        else:
            rows.append(_row(prefix + name, array, (reason,)))
    problems.check(
        f"the source fits the layout {layout.name} and the settings",
        expected=f"every array of these layers once, as {', '.join(FLOAT_DTYPES)}, and nothing "
        "else below the prefix unless a drop pattern names it",
    )
    outside = tuple(name for name in source if not name.startswith(prefix))
    return Weights(layers, tensors), Audit(layout.name, "to neutral", prefix, tuple(rows), outside)


def export(
    weights: Weights, layout: Layout | str, *, prefix: str = ""
) -> tuple[dict[str, Array], Audit]:
    """Write neutral weights as foreign arrays: the inverse of `convert`.

    Args:
        weights: The layers to write.
        layout: How to name and shape them, or its name in `LAYOUTS`.
        prefix: Put before every name.

    Returns:
        Arrays by foreign name, sharing no memory with the weights, and the audit.

    Raises:
        WeightsError: Lists every layer and parameter that the layout has no place for.
    """
    layout = as_layout(layout)
    problems = Problems()
    rows: list[AuditRow] = []
    result: dict[str, Array] = {}
    for own, parameter, name, steps in _places(weights.layers, layout, problems):
        array = weights.tensors[own]
        sizes = dict(zip(parameter.axes, parameter.shape, strict=True))
        for step in reversed(steps):
            array = step.inverse(array, sizes)
        result[prefix + name] = np.array(array, order="C", copy=True)
        undone = tuple(f"undo {step}" for step in reversed(steps))
        rows.append(_row(own, weights.tensors[own], undone, prefix + name, array.shape))
    problems.check(
        f"the layout {layout.name} has a place for every layer and parameter",
        expected="other layer paths (Weights.join), other settings, or another layout",
    )
    return result, Audit(layout.name, "from neutral", prefix, tuple(rows))


def _places(
    layers: Mapping[str, AttentionSettings], layout: Layout, problems: Problems
) -> Iterator[tuple[str, Parameter, str, tuple[Step, ...]]]:
    """Our full name, the parameter, its foreign name and the steps from there to here."""
    for path, settings in layers.items():
        if not layout.can_name(path):
            problems.add("no number", f"layer {path!r}")
            continue
        if layout.read_scheme is not None:
            shapes = {parameter.name: parameter.shape for parameter in settings.parameters()}
            meant = layout.read_scheme(shapes)
            if meant != settings.scheme:
                problems.add("another scheme", f"layer {path}: {settings.scheme}, not {meant}")
                continue
        for parameter in settings.parameters():
            own, entry = joined_path(path, parameter.name), layout.entry(parameter.name)
            if entry is None:
                problems.add("no place", own)
            else:
                yield own, parameter, layout.source_name(entry, path, parameter.name), entry.steps


def _reason_to_drop(
    name: str,
    array: Array,
    layout: Layout,
    drops: Iterable[Drop],
    layers: Mapping[str, AttentionSettings],
    prefix: str,
    problems: Problems,
) -> str | None:
    for drop in drops:
        match = layout.pattern(drop.source).fullmatch(name)
        if match is None:
            continue
        if drop.check is not None:
            path = layout.path_of(match)
            if path not in layers:
                continue
            fault = drop.check(array, layers[path])
            if fault is not None:
                problems.add("contradicting", f"{prefix}{name}: {fault}")
        return drop.reason
    return None


def _row(
    source: str,
    array: Array,
    steps: Iterable[Step | str],
    target: str | None = None,
    shape: tuple[int, ...] | None = None,
) -> AuditRow:
    return AuditRow(
        source=source,
        shape=array.shape,
        dtype=array.dtype.name,
        sha256=fingerprint(array),
        use="dropped" if target is None else "used",
        steps=tuple(str(step) for step in steps),
        target=target,
        target_shape=shape,
    )
