"""The roster: every scheme with its settings, situations and wrong inputs.

To add a scheme, add a row per setting that changes what is computed. A row gets every check of the
harness and of the tests: both twins, values and gradients, every mode and dtype, layers, decoding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from relpos.errors import DistanceError, RelposError, SettingError, ShapeError
from relpos.parity.cases import Case, Inputs
from relpos.schemes import T5, NoPosition, RoPE, Scheme, Shaw, Windowed

__all__ = ["COMMON_WRONGS", "ROSTER", "Row", "Wrong"]


@dataclass(frozen=True, eq=False)
class Wrong:
    """An input that must be refused.

    Attributes:
        name: What is wrong.
        error: The class of the error.
        message: A piece of its message.
        settings: Builds impossible settings, if those are wrong.
        change: Spoils the inputs of the row's first case, if those are wrong.
        case: Fields of the first case that differ.
    """

    name: str
    error: type[RelposError]
    message: str
    settings: Callable[[], object] | None = None
    change: Callable[[Inputs], Inputs] | None = None
    case: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Row:
    """One line of the roster.

    Attributes:
        name: Unique; the scheme's name first.
        scheme: The scheme with the settings that this row is about.
        d: Head width.
        past: A length past every table of the scheme; None where the table may not clip.
        wrong: Inputs that must be refused, apart from those that every scheme refuses.
    """

    name: str
    scheme: Scheme
    d: int = 11
    past: int | None = 17
    wrong: tuple[Wrong, ...] = ()

    @property
    def cases(self) -> tuple[Case, ...]:
        """The situations, the plainest first. Lengths repeat so that compiled code does too."""
        scheme, d = self.scheme, self.d
        cases = [
            # Cross-attention with fewer queries than keys.
            Case("cross", scheme, d=d),
            # Grouped heads, causal from the end of the keys, a query that may attend to nothing.
            Case("masked", scheme, H=6, d=d, causal=True, mask="full", scale=0.3),
            # Self-attention over padded keys at positions without any order.
            Case("shuffled", scheme, Lq=7, d=d, mask="keys", positions="shuffled"),
            # Each batch row at positions of its own, one of them far out; one key head.
            Case("packed", scheme, G=1, d=d, causal=True, mask="pairs", positions="packed"),
            Case("single", scheme, Lq=1, Lk=1, d=d),
        ]
        if self.past is not None:
            # Past the table on one side, then on the other: few pairs, all distances.
            cases += [
                Case("past-left", scheme, B=1, Lq=2, Lk=self.past, d=d, causal=True),
                Case("past-right", scheme, B=1, Lq=self.past, Lk=2, d=d),
            ]
        return tuple(cases)

    @property
    def layer_cases(self) -> tuple[Case, ...]:
        """The situations of the layers: cross-attention, and masked causal self-attention."""
        return (
            Case("layer-cross", self.scheme, d=self.d, mask="pairs", positions="shuffled"),
            Case("layer-self", self.scheme, H=6, Lq=7, d=self.d, causal=True, mask="full"),
        )

    @property
    def decode_case(self) -> Case:
        """Causal self-attention, to be repeated in chunks through the cache."""
        return Case("decode", self.scheme, H=6, Lq=7, d=self.d, causal=True)


def _resized(field: str, *shape: int) -> Callable[[Inputs], Inputs]:
    def change(inputs: Inputs) -> Inputs:
        changes: dict[str, Any] = {field: np.resize(getattr(inputs, field), shape)}
        return dataclasses.replace(inputs, **changes)

    return change


def _replaced(field: str, value: Any) -> Callable[[Inputs], Inputs]:
    return lambda inputs: dataclasses.replace(inputs, **{field: value})


#: What every scheme refuses.
COMMON_WRONGS = (
    Wrong("q-axes", ShapeError, "q has four axes", change=_resized("q", 3, 5, 11)),
    Wrong("v-shape", ShapeError, "v has the shape of k", change=_resized("v", 2, 3, 5, 11)),
    Wrong("batch", ShapeError, "q and k agree in B", change=_resized("q", 3, 3, 5, 11)),
    Wrong("heads", ShapeError, "is a multiple of the key heads", change=_resized("q", 2, 4, 5, 11)),
    Wrong(
        "mask-shape",
        ShapeError,
        "a mask must have four axes",
        change=_replaced("mask", np.ones((1, 1, 7, 5), bool)),
    ),
    Wrong(
        "mask-dtype",
        ShapeError,
        "a mask must be boolean",
        change=_replaced("mask", np.zeros((1, 1, 5, 7), np.float32)),
    ),
    Wrong(
        "position-length",
        ShapeError,
        "query_positions have one entry per token",
        change=_replaced("query_positions", np.arange(6, dtype=np.int32)),
    ),
    Wrong(
        "position-dtype",
        ShapeError,
        "key_positions must be signed integers",
        change=_replaced("key_positions", np.arange(7, dtype=np.float32)),
    ),
    Wrong(
        "unknown-parameter",
        ShapeError,
        "params hold exactly the scheme's parameters",
        change=_replaced("params", {"unheard_of": np.zeros((1, 2), np.float32)}),
    ),
)

_REACH = "counts positions"
_TABLES = "needs a table for keys, values or both"

#: Every scheme and setting that the harness checks, by name.
ROSTER: dict[str, Row] = {
    row.name: row
    for row in (
        Row("NoPosition", NoPosition()),
        Row(
            "Shaw",
            Shaw(left=3, right=2),
            wrong=(
                Wrong("reach", SettingError, _REACH, settings=lambda: Shaw(-1, 2)),
                Wrong("tables", SettingError, _TABLES, settings=lambda: Shaw(1, 2, False, False)),
                Wrong(
                    "table-shape",
                    ShapeError,
                    "params hold exactly the scheme's parameters",
                    change=lambda inputs: dataclasses.replace(
                        inputs, params={n: a[:, :-1] for n, a in inputs.params.items()}
                    ),
                ),
            ),
        ),
        Row("Shaw keys", Shaw(left=2, right=5, values=False, per_head=True)),
        Row("Shaw values", Shaw(left=5, right=0, keys=False)),
        Row(
            "Shaw full",
            Shaw(left=6, right=6, per_head=True, clip=False),
            past=None,
            wrong=(
                Wrong("past", DistanceError, "has a row for the distances", case={"Lk": 13}),
                Wrong(
                    "past-explicit",
                    DistanceError,
                    "has a row for the distances",
                    change=_replaced("query_positions", np.array([0, 1, 2, 3, 17], np.int32)),
                ),
            ),
        ),
        Row(
            "Windowed",
            Windowed(left=3, right=2),
            wrong=(
                Wrong("reach", SettingError, _REACH, settings=lambda: Windowed(2, -1)),
                Wrong(
                    "tables",
                    SettingError,
                    _TABLES,
                    settings=lambda: Windowed(1, 2, keys=False, values=False),
                ),
            ),
        ),
        Row("Windowed keys", Windowed(left=1, right=4, values=False, per_head=True)),
        Row("Windowed values", Windowed(left=4, right=1, keys=False, per_head=True)),
        Row(
            "T5",
            T5(),
            past=131,
            wrong=(
                Wrong(
                    "buckets",
                    SettingError,
                    "must leave an exact bucket on each side",
                    settings=lambda: T5(num_buckets=7),
                ),
                Wrong(
                    "distance",
                    SettingError,
                    "must lie beyond the exact buckets",
                    settings=lambda: T5(max_distance=8),
                ),
            ),
        ),
        Row("T5 causal", T5(bidirectional=False), past=131),
        Row("T5 small", T5(num_buckets=10, max_distance=13)),
        Row("T5 small causal", T5(num_buckets=7, max_distance=11, bidirectional=False)),
        Row(
            "RoPE half",
            RoPE("half"),
            d=10,
            wrong=(
                Wrong(
                    "layout",
                    SettingError,
                    "RoPE.layout must have its declared type",
                    settings=lambda: RoPE("pairs"),  # type: ignore[arg-type]
                ),
                Wrong(
                    "odd",
                    SettingError,
                    "must hold whole pairs",
                    settings=lambda: RoPE("half", rotary_dim=5),
                ),
                Wrong(
                    "base",
                    SettingError,
                    "must give falling frequencies",
                    settings=lambda: RoPE("half", base=1.0),
                ),
            ),
        ),
        Row("RoPE interleaved", RoPE("interleaved"), d=10),
        Row("RoPE half partial", RoPE("half", rotary_dim=6, base=100.0)),
        Row("RoPE interleaved partial", RoPE("interleaved", rotary_dim=4, base=500_000.0)),
    )
}
