"""Every setting does something, every parameter too, and nothing unknown is taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from parity_tests.rows.calls import every_row, needs, torch_output
from relpos.errors import RelposError, SettingError
from relpos.parity.roster import ROSTER, Row
from relpos.schemes import Scheme, scheme_from_dict


def settings_of(value: Any, path: str = "") -> Iterator[tuple[str, str, Any, Any]]:
    """Owner, path, value and type of each setting, those of settings inside settings too."""
    hints = get_type_hints(type(value))
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        yield type(value).__name__, path + field.name, inner, hints[field.name]
        if dataclasses.is_dataclass(inner):
            yield from settings_of(inner, f"{path}{field.name}.")


def replaced(value: Any, path: str, other: Any) -> Any:
    """Settings with the one at a path changed."""
    name, _, rest = path.partition(".")
    if rest:
        other = replaced(getattr(value, name), rest, other)
    return dataclasses.replace(value, **{name: other})


def others(row: Row, path: str, value: Any, hint: Any) -> list[Any]:
    """Values to try: the row's own, neighbours, and those that other rows of the scheme have."""
    if path in row.changes:
        return [row.changes[path]]
    found: list[Any] = []
    options = [hint, *get_args(hint)] if get_origin(hint) is not Literal else [hint]
    for option in options:
        if get_origin(option) is Literal:
            found += get_args(option)
    if isinstance(value, bool):
        found.append(not value)
    elif isinstance(value, int):
        found += [value + 1, value + 2, value - 1, value - 2, 2 * value]
    elif isinstance(value, float):
        found += [1.5 * value, value / 1.5, value + 0.25, value - 0.25]
    elif isinstance(value, tuple) and value and isinstance(value[-1], float):
        found += [(*value[:-1], 1.5 * value[-1])]
    elif value is None:
        found += [kind(n) for kind in (int, float) if kind in options for n in (2, 4)]
        found += [True] if bool in options else []
    for other in ROSTER.values():
        if other.scheme.name == row.scheme.name:
            found += [v for _, name, v, _ in settings_of(other.scheme) if name == path]
    return [other for other in found if other != value]


def accepted(row: Row, path: str, values: list[Any]) -> list[Scheme]:
    """The schemes with one of these values that there can be."""
    schemes = []
    for value in values:
        try:
            whole = isinstance(value, Scheme)
            scheme = value if whole else replaced(row.scheme, path, value)
            scheme.check_head_dim(row.d)
        except RelposError:
            continue
        schemes.append(scheme)
    return schemes


def differs(row: Row, scheme: Scheme) -> bool:
    """Whether the table of parameters, or any output, or what is refused, is another."""
    for case in row.cases:
        other = case.replace(scheme=scheme)
        if other.parameters() != case.parameters():
            return True
        inputs = case.inputs("float64")
        try:
            if not np.array_equal(torch_output(other, inputs), torch_output(case, inputs)):
                return True
        except RelposError:
            return True
    return False


#: The rows that have a setting, by scheme, owner and path.
SETTINGS: dict[str, list[tuple[Row, str, Any, Any]]] = {}
for _row in ROSTER.values():
    for _owner, *_setting in settings_of(_row.scheme):
        key = f"{_row.scheme.name} {_owner}.{_setting[0].rpartition('.')[2]}"
        SETTINGS.setdefault(key, []).append((_row, *_setting))


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_setting_is_ignored(setting: str) -> None:
    # On one row at least: beside other settings a value may be impossible, and is then refused, or
    # have nothing to change, as a clip that no distance reaches.
    tried = []
    for row, path, value, hint in SETTINGS[setting]:
        values = others(row, path, value, hint)
        schemes = accepted(row, path, values)
        if any(differs(row, scheme) for scheme in schemes):
            return
        tried.append(f"{row.name}: {value} for {values}, {len(schemes)} possible")
    pytest.fail(f"ignored, or Row.changes must name another value: {tried}")


@every_row
def test_no_parameter_is_dead(row: Row) -> None:
    for parameter in row.scheme.parameters(3, row.d):
        needs(row, f"parameter {parameter.name}")
        for case in row.cases:
            inputs = case.inputs("float64")
            other = case.replace(seed=1).inputs("float64").params[parameter.name]
            params = {**inputs.params, parameter.name: other}
            changed = dataclasses.replace(inputs, params=params)
            if not np.array_equal(torch_output(case, changed), torch_output(case, inputs)):
                break
        else:
            pytest.fail(f"{parameter.name} changes nothing")


@every_row
def test_what_heads_share_is_there_once(row: Row) -> None:
    H = 3
    table = row.scheme.parameters(H, row.d)
    for parameter in table:
        first = parameter.axes[0], parameter.shape[0]
        assert first in {("heads", H), ("shared", 1)}, parameter
    if hasattr(row.scheme, "per_head"):
        each, shared = (
            replaced(row.scheme, "per_head", value).parameters(H, row.d) for value in (True, False)
        )
        for one, all_ in zip(each, shared, strict=True):
            assert np.prod(one.shape) == H * np.prod(all_.shape)


@every_row
def test_the_order_of_tokens_matters(row: Row) -> None:
    needs(row, "order")
    case = row.cases[0]
    inputs = case.inputs("float64")
    forwards = torch_output(case, inputs)
    backwards = {
        "query_positions": np.arange(case.Lk - case.Lq, case.Lk, dtype=np.int32),
        "key_positions": np.arange(case.Lk, dtype=np.int32)[::-1].copy(),
    }
    assert (torch_output(case, dataclasses.replace(inputs, **backwards)) != forwards).any()


@every_row
def test_settings_are_stored_and_unknown_ones_refused(row: Row) -> None:
    stored = row.scheme.to_dict()
    assert scheme_from_dict(stored) == row.scheme
    spoiled: list[Any] = [{**stored, "unheard_of": 1}, {"scheme": stored["scheme"] + "?"}]
    for wrong in (*spoiled, stored["scheme"], None):
        with pytest.raises(SettingError):
            scheme_from_dict(wrong)
    if len(stored) > 1:
        with pytest.raises(SettingError, match="every field once"):
            scheme_from_dict(dict(list(stored.items())[:-1]))
