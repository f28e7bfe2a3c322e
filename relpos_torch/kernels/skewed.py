"""How the scores of a block lie in memory: by distance and by key at once.

A block is R rows of queries at consecutive default positions; its last row is at `last`. Column w
of the rectangle [R, W] belongs to the distance w - last, so that everything that is a function of
distance alone is a rectangle: a product with rows of a table, a bias, a causal mask. Row r of the
pairs begins at column R - 1 - r: the pairs [R, K] are the same memory, read with rows that are one
number shorter.

    rectangle[r, w] = memory[r * (stride + 1) + w]
    pairs[r, j]     = memory[r * stride + R - 1 + j] = rectangle[r, R - 1 - r + j]

The memory's own start is chosen so that rows of pairs begin where the processor likes to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

__all__ = ["Block", "Range", "Skewed", "block_rows", "blocks", "rows_per_block"]

#: Scores of a block: what one operation writes is still near when the next one reads it.
SCORES = 2**18
#: The most and the fewest rows of a block: of more none gains, and of fewer each shares what is
#: read for all of them with too few others.
MOST, FEWEST = 128, 32
#: Numbers from one place where the processor likes to read to the next.
LINE = 16

_ROWS: ContextVar[int | None] = ContextVar("rows", default=None)


@dataclass(frozen=True)
class Block:
    """Rows of one head and the keys that they may see.

    Attributes:
        number: Which block of the head it is.
        start: The first row.
        stop: The row after the last.
        keys: It sees keys 0 .. keys - 1.
        last: The default position of the last row.
    """

    number: int
    start: int
    stop: int
    keys: int
    last: int

    @property
    def rows(self) -> slice:
        """The rows."""
        return slice(self.start, self.stop)

    @property
    def R(self) -> int:
        """How many rows."""
        return self.stop - self.start

    def range(self, first: int, N: int) -> Range:
        """Which columns of the rectangle read which rows of a table."""
        width = self.keys + self.R - 1
        low = min(max(first + self.last, 0), width)
        high = min(max(first + N + self.last, 0), width)
        return Range(low, high, width, low - self.last - first)


@dataclass(frozen=True)
class Range:
    """Columns of a rectangle by what they read: end rows are read by all beyond.

    Attributes:
        low: Columns before it read the first row.
        high: Columns from here on read the last row.
        width: Number of columns.
        row: The row that column `low` reads, if it is before `high`.
    """

    low: int
    high: int
    width: int
    row: int

    @property
    def middle(self) -> slice:
        """The columns with rows of their own."""
        return slice(self.low, self.high)

    @property
    def table(self) -> slice:
        """The rows that `middle` reads."""
        return slice(self.row, self.row + self.high - self.low)


@contextmanager
def block_rows(rows: int) -> Iterator[None]:
    """So many rows for the blocks of all calls inside, as tests ask for."""
    token = _ROWS.set(rows)
    try:
        yield
    finally:
        _ROWS.reset(token)


def rows_per_block(Lq: int, Lk: int) -> int:
    """How many rows a block has, unless it is the last."""
    rows = _ROWS.get() or min(max(SCORES // max(Lk, 1), FEWEST), MOST)
    return min(rows, max(Lq, 1))


def blocks(Lq: int, Lk: int, rows: int, in_order: bool) -> Iterator[Block]:
    """The blocks of one head; `in_order` says that no row sees keys beyond its own place."""
    for number, start in enumerate(range(0, Lq, rows)):
        stop = min(start + rows, Lq)
        last = Lk - Lq + stop - 1
        yield Block(number, start, stop, max(last + 1, 0) if in_order else Lk, last)


class Skewed:
    """Memory for the scores of one block after the other.

    Args:
        rows: Rows of the largest block.
        keys: Keys of the largest block.
        like: A tensor of the dtype and device.
    """

    def __init__(self, rows: int, keys: int, like: Tensor) -> None:
        self.stride = -(-(keys + rows - 1) // LINE) * LINE
        self.memory = like.new_zeros(rows * (self.stride + 1) + LINE)

    def pairs(self, block: Block) -> Float[Tensor, "R K"]:
        """The scores by key."""
        start = self._start(block) + block.R - 1
        return self.memory.as_strided((block.R, block.keys), (self.stride, 1), start)

    def rectangle(self, block: Block) -> Float[Tensor, "R W"]:
        """The scores by distance; what is no pair holds anything, see `trim`."""
        size = (block.R, block.keys + block.R - 1)
        return self.memory.as_strided(size, (self.stride + 1, 1), self._start(block))

    def trim(self, block: Block) -> None:
        """Make 0 what is in the rectangle but no pair: a triangle on either side."""
        start = self._start(block)
        # Rows of pairs begin R - 1 numbers after rows of the memory, and end as many before them.
        for beside in (start, start + block.R - 1 + block.keys):
            self.memory.as_strided((block.R, block.R - 1), (self.stride, 1), beside).zero_()

    def _start(self, block: Block) -> int:
        return (1 - block.R) % LINE
