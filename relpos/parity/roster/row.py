"""A row of the roster: a scheme with its settings, situations and wrong inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from relpos.errors import RelposError, ShapeError
from relpos.parity.cases import Case, Inputs
from relpos.schemes import Scheme

__all__ = ["COMMON_WRONGS", "Row", "Wrong", "replaced", "resized"]


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
        D: Width of a layer's inputs.
        past: A length past every table of the scheme, or the whole of its grid; None where the
            table may not clip.
        representative: Stands for its kind in checks of kernels and layers that would take too long
            for every row: vmap, torch.compile, Flax layers, exports. The representatives have every
            kind of term between them.
        changes: For a setting by its path (`left`, `scaling.factor`): another value that must make
            a difference, where none follows from its type; or a whole scheme, where other settings
            must change with it.
        exempt: What tests ask of every row but cannot ask of this one, and why.
        wrong: Inputs that must be refused, apart from those that every scheme refuses.
    """

    name: str
    scheme: Scheme
    d: int = 11
    D: int = 13
    past: int | None = 17
    representative: bool = False
    changes: Mapping[str, object] = dataclasses.field(default_factory=dict)
    exempt: Mapping[str, str] = dataclasses.field(default_factory=dict)
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
            # Past the table on both sides: the last query and the first one read every distance.
            L = self.past
            cases.append(Case("past", scheme, B=1, Lq=L, Lk=L, d=d, mask="ends"))
        return tuple(cases)

    @property
    def layer_cases(self) -> tuple[Case, ...]:
        """The situations of the layers: cross-attention, and masked causal self-attention."""
        return (
            Case(
                "layer-cross", self.scheme, d=self.d, D=self.D, mask="pairs", positions="shuffled"
            ),
            Case(
                "layer-self", self.scheme, H=6, Lq=7, d=self.d, D=self.D, causal=True, mask="full"
            ),
        )

    @property
    def decode_case(self) -> Case:
        """Causal self-attention, to be repeated in chunks through the cache."""
        return Case("decode", self.scheme, H=6, Lq=7, d=self.d, D=self.D, causal=True)


def resized(field: str, *shape: int) -> Callable[[Inputs], Inputs]:
    """A change of one input array to another shape."""

    def change(inputs: Inputs) -> Inputs:
        changes: dict[str, Any] = {field: np.resize(getattr(inputs, field), shape)}
        return dataclasses.replace(inputs, **changes)

    return change


def replaced(field: str, value: Any) -> Callable[[Inputs], Inputs]:
    """A change of one input to another value."""
    return lambda inputs: dataclasses.replace(inputs, **{field: value})


#: What every scheme refuses.
COMMON_WRONGS = (
    Wrong("q-axes", ShapeError, "q has four axes", change=resized("q", 3, 5, 11)),
    Wrong("v-shape", ShapeError, "v has the shape of k", change=resized("v", 2, 3, 5, 11)),
    Wrong("batch", ShapeError, "q and k agree in B", change=resized("q", 3, 3, 5, 11)),
    Wrong("heads", ShapeError, "is a multiple of the key heads", change=resized("q", 2, 4, 5, 11)),
    Wrong(
        "mask-shape",
        ShapeError,
        "a mask must have four axes",
        change=replaced("mask", np.ones((1, 1, 7, 5), bool)),
    ),
    Wrong(
        "mask-dtype",
        ShapeError,
        "a mask must be boolean",
        change=replaced("mask", np.zeros((1, 1, 5, 7), np.float32)),
    ),
    Wrong(
        "position-length",
        ShapeError,
        "query_positions have one entry per token",
        change=replaced("query_positions", np.arange(6, dtype=np.int32)),
    ),
    Wrong(
        "position-dtype",
        ShapeError,
        "key_positions must be signed integers",
        change=replaced("key_positions", np.arange(7, dtype=np.float32)),
    ),
    Wrong(
        "unread-features",
        ShapeError,
        "query_features are what NoPosition reads of each token",
        change=replaced("features", {"query_features": np.ones((2, 3, 5, 1), np.float32)}),
    ),
    Wrong(
        "unknown-parameter",
        ShapeError,
        "params hold exactly the scheme's parameters",
        change=replaced("params", {"unheard_of": np.zeros((1, 2), np.float32)}),
    ),
)
