"""Invertible steps from a foreign array to ours: each moves numbers and changes none.

Axes carry the names of `Parameter.axes`. A step works on arrays in both directions, and on the
names alone from our side to theirs: so a layout tells which shape it expects before any array is
there, and a head width or model width can be read off a foreign shape.

An axis that is a product of ours is the tuple of its factors: a torch weight [H*d, D] has the axes
(("heads", "head_dim"), ("embed",)); an axis of length 1 that we do not have is ().
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from relpos.weights.neutral import Array

__all__ = ["LETTERS", "Axes", "Split", "Squeeze", "Step", "Transpose", "source_axes"]

Axes = tuple[tuple[str, ...], ...]
Sizes = Mapping[str, int]

#: The letters of the documentation, for display.
LETTERS = {"embed": "D", "heads": "H", "kv_heads": "G", "head_dim": "d"}


class Step:
    """One invertible rearrangement; `sizes` gives the length of every named axis."""

    def forward(self, array: Array, sizes: Sizes) -> Array:
        """From the foreign array towards ours."""
        raise NotImplementedError

    def inverse(self, array: Array, sizes: Sizes) -> Array:
        """From our array towards the foreign one."""
        raise NotImplementedError

    def inverse_axes(self, axes: Axes) -> Axes:
        """What `inverse` does, on the names of the axes."""
        raise NotImplementedError


@dataclass(frozen=True)
class Transpose(Step):
    """Axis number `order[n]` becomes axis n."""

    order: tuple[int, ...]

    @property
    def _back(self) -> tuple[int, ...]:
        return tuple(self.order.index(axis) for axis in range(len(self.order)))

    def forward(self, array: Array, sizes: Sizes) -> Array:
        return array.transpose(self.order)

    def inverse(self, array: Array, sizes: Sizes) -> Array:
        return array.transpose(self._back)

    def inverse_axes(self, axes: Axes) -> Axes:
        return tuple(axes[axis] for axis in self._back)

    def __str__(self) -> str:
        return f"transpose {self.order}" if len(self.order) > 2 else "transpose"


@dataclass(frozen=True)
class Split(Step):
    """One axis becomes several, the first of `into` varying slowest."""

    axis: int
    into: tuple[str, ...]

    def forward(self, array: Array, sizes: Sizes) -> Array:
        shape = array.shape
        into = tuple(sizes[name] for name in self.into)
        return array.reshape(*shape[: self.axis], *into, *shape[self.axis + 1 :])

    def inverse(self, array: Array, sizes: Sizes) -> Array:
        shape, after = array.shape, self.axis + len(self.into)
        return array.reshape(
            *shape[: self.axis], math.prod(shape[self.axis : after]), *shape[after:]
        )

    def inverse_axes(self, axes: Axes) -> Axes:
        after = self.axis + len(self.into)
        merged = tuple(name for axis in axes[self.axis : after] for name in axis)
        return (*axes[: self.axis], merged, *axes[after:])

    def __str__(self) -> str:
        return f"split {self.axis} into ({', '.join(LETTERS.get(n, n) for n in self.into)})"


@dataclass(frozen=True)
class Squeeze(Step):
    """An axis of length 1 goes."""

    axis: int

    def forward(self, array: Array, sizes: Sizes) -> Array:
        return np.squeeze(array, self.axis)

    def inverse(self, array: Array, sizes: Sizes) -> Array:
        return np.expand_dims(array, self.axis)

    def inverse_axes(self, axes: Axes) -> Axes:
        return (*axes[: self.axis], (), *axes[self.axis :])

    def __str__(self) -> str:
        return f"squeeze {self.axis}"


def source_axes(steps: tuple[Step, ...], axes: tuple[str, ...]) -> Axes:
    """The axes of the foreign array that `steps` turn into one with `axes`.

    Example:
        >>> source_axes((Squeeze(2), Transpose((1, 0))), ("embed", "heads"))
        (('heads',), ('embed',), ())
    """
    result: Axes = tuple((name,) for name in axes)
    for step in reversed(steps):
        result = step.inverse_axes(result)
    return result
