"""How the rows of one head are cut into blocks, and what of each array a block reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool

from relpos_jax.kernels.positions import Positions

__all__ = [
    "Block",
    "Part",
    "Plan",
    "Span",
    "add",
    "block_rows",
    "cut",
    "over_blocks",
    "plan_blocks",
    "rows_per_block",
]

C = TypeVar("C")

#: What of an array a block reads: its rows, along the first axis; the keys that it sees, along
#: the first axis; the distances that it sees, along the last axis; the differences of keys and its
#: first row, along the last axis; or all.
Part = Literal["rows", "keys", "distances", "columns", "whole"]


@dataclass(frozen=True)
class Span:
    """Some columns of a block: the first may be told from the block's place, and how many.

    Attributes:
        first: The distance from the block's first row to the first column, where that is a key.
        width: How many columns there are.
    """

    first: int
    width: int


#: Causal blocks come in so many stretches, each of which reads the keys up to its last visible one:
#: the more stretches, the less is read in vain, and the more there is to compile.
STRETCHES = 4

_ROWS: ContextVar[int | None] = ContextVar("rows", default=None)


@dataclass(frozen=True)
class Plan:
    """The blocks of one head.

    Attributes:
        Lq: Queries of the call.
        Lk: Keys of the call.
        rows: Rows of every block. Where they do not divide Lq the last block begins earlier, and
            repeats rows of the one before it.
        stretches: How many blocks see how many keys, from the first block on.
    """

    Lq: int
    Lk: int
    rows: int
    stretches: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Block:
    """Rows start .. start + rows - 1, which see the keys 0 .. keys - 1.

    Attributes:
        plan: What it is a block of.
        start: The first row.
        keys: How many keys it sees.
        repeated: How many of its first rows another block has computed.
    """

    plan: Plan
    start: Any
    keys: int
    repeated: Any

    def fresh(self) -> Bool[Array, " rows"] | None:
        """Which rows no other block has; None if that is all."""
        if self.plan.Lq % self.plan.rows == 0:
            return None
        return jnp.arange(self.plan.rows) >= self.repeated

    def local(self) -> Positions:
        """Default positions of so many queries and keys."""
        return Positions(None, None, self.plan.rows, self.keys, causal=False)

    def positions(self, of_call: Positions) -> Positions:
        """Where the block's queries and keys stand, as arrays."""
        query, key = of_call.arrays()
        rows = lax.dynamic_slice_in_dim(query, self.start, self.plan.rows)
        return Positions(rows, key[: self.keys], self.plan.rows, self.keys, of_call.causal)

    def begin(self, span: Span) -> Array:
        """The first of a span's columns: they end with the keys, however far out the block is."""
        place = self.start + self.plan.Lk - self.plan.Lq
        return jnp.clip(place + span.first, 0, self.keys - span.width)

    def range(self, part: Part | Span) -> tuple[int, Any, int]:
        """Axis, start and length of a part.

        Arrays by distance hold -Lk .. Lq. A block reads as many as `strips.skewed` lays out over
        its rows and keys, from wherever its own distances begin.
        """
        rows, keys = self.plan.rows, self.keys
        if isinstance(part, Span):
            start = self.begin(part) + self.plan.Lq - rows - self.start
            return -1, start, rows + part.width + 1
        if part in ("distances", "columns"):
            size = rows + keys + 1 if part == "distances" else keys
            return -1, self.plan.Lq - rows - self.start, size
        return (0, self.start, rows) if part == "rows" else (0, 0, keys)


@contextmanager
def block_rows(rows: int) -> Iterator[None]:
    """So many rows for the blocks of all calls that are traced inside, as tests ask for."""
    token = _ROWS.set(rows)
    try:
        yield
    finally:
        _ROWS.reset(token)


def rows_per_block(heads: int, Lk: int) -> int:
    """How many rows a block has.

    On two cores of a processor 256 rows were the fastest, or nearly so, at all lengths from 1024 to
    8192: of fewer, each shares its distances with too few others.

    Args:
        heads: How many heads, of all batch rows, are computed at the same time.
        Lk: Keys of the call.
    """
    asked = _ROWS.get()
    if asked is not None:
        return asked
    most_scores = 2**26
    return max(16, min(256, most_scores // (heads * Lk)))


def plan_blocks(Lq: int, Lk: int, rows: int, in_order: bool) -> Plan:
    """The blocks of one head; `in_order` says that no row reads keys beyond its own place."""
    rows = min(rows, Lq)
    blocks = -(-Lq // rows)
    if not in_order:
        return Plan(Lq, Lk, rows, ((blocks, Lk),))
    number = max(min(STRETCHES, blocks // 2), 1)
    ends = [blocks * (n + 1) // number for n in range(number)]
    counts = (end - start for start, end in zip((0, *ends), ends, strict=False))
    # One key at least, for what sees none has a shape too.
    keys = (max(min(end * rows, Lq) + Lk - Lq, 1) for end in ends)
    return Plan(Lq, Lk, rows, tuple(zip(counts, keys, strict=True)))


def over_blocks(
    plan: Plan,
    step: Callable[[Block, C, Any], tuple[C, Any]],
    carry: C,
    scratch: Callable[[int], Any],
) -> C:
    """Hand what is carried from block to block.

    Args:
        plan: The blocks.
        step: From a block, what is carried and the scratch to the new ones.
        carry: What is carried at first.
        scratch: What blocks that see so many keys hand on beside it.
    """
    done = 0
    for count, keys in plan.stretches:

        def one(state: tuple[C, Any], number: Array, keys: int = keys) -> tuple[Any, None]:
            first = number * plan.rows
            start = jnp.minimum(first, plan.Lq - plan.rows)
            return step(Block(plan, start, keys, first - start), *state), None

        (carry, _), _ = lax.scan(one, (carry, scratch(keys)), jnp.arange(done, done + count))
        done += count
    return carry


def cut(parts: Any, arrays: Any, block: Block) -> Any:
    """What the block reads of each array; `parts` is a tree of `Part` like that of the arrays."""

    def one(part: Part | Span, array: Array) -> Array:
        if part == "whole":
            return array
        axis, start, size = block.range(part)
        return lax.dynamic_slice_in_dim(array, start, size, axis)

    return jax.tree.map(one, parts, arrays)


def add(parts: Any, totals: Any, found: Any, block: Block) -> Any:
    """Totals to which what was found for a block is added, where it was cut from."""

    def one(part: Part | Span, total: Array, more: Array) -> Array:
        if part == "whole":
            return total + more
        axis, start, size = block.range(part)
        so_far = lax.dynamic_slice_in_dim(total, start, size, axis)
        return lax.dynamic_update_slice_in_dim(total, so_far + more, start, axis)

    return jax.tree.map(one, parts, totals, found)
