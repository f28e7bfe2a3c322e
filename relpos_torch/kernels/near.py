"""Terms at the default distances, for a block of one head: functions of distance are rectangles.

Where a table is constant there is no product: those columns of a rectangle hold one number per
query, <feature, end row>, and their sums are all that its gradients need.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from relpos_torch.kernels.by_distance import expand
from relpos_torch.kernels.skewed import Block, Range

__all__ = ["Biases", "KeyProduct", "Vectors", "fold"]


class Vectors:
    """A vector per distance, which features of queries meet.

    Args:
        values: The table of one head [N, e].
        first: The distance of row 0.
        total: Its gradient, added to; None in the forward pass.
    """

    def __init__(
        self, values: Float[Tensor, "N e"], first: int, total: Float[Tensor, "N e"] | None
    ) -> None:
        self.values, self.first, self.total = values.contiguous(), first, total
        self.ends = torch.stack((values[0], values[-1]), -1)

    def put(
        self,
        rectangle: Float[Tensor, "R W"],
        features: Float[Tensor, "R e"],
        block: Block,
        filled: bool,
    ) -> None:
        """Write, or add where it is filled already, <features[r], row> into every column."""
        at = block.range(self.first, len(self.values))
        ends = features @ self.ends
        for n, beyond in enumerate((rectangle[:, : at.low], rectangle[:, at.high :])):
            if beyond.shape[1]:
                number = ends[:, n : n + 1]
                beyond.add_(number) if filled else beyond.copy_(number.expand_as(beyond))
        if at.low < at.high:
            middle = rectangle[:, at.middle]
            middle.addmm_(features, self.values[at.table].mT, beta=1.0 if filled else 0.0)

    def gather(
        self, rectangle: Float[Tensor, "R W"], into: Float[Tensor, "R e"], block: Block
    ) -> None:
        """Add sum_w rectangle[r, w] * row."""
        at = block.range(self.first, len(self.values))
        for row, sums in self._beyond(rectangle, at):
            into.addr_(sums, self.values[row])
        if at.low < at.high:
            into.addmm_(rectangle[:, at.middle], self.values[at.table])

    def add_gradient(
        self, rectangle: Float[Tensor, "R W"], features: Float[Tensor, "R e"], block: Block
    ) -> None:
        """Add sum_r rectangle[r, w] * features[r] to the gradient of the row of each column."""
        assert self.total is not None
        at = block.range(self.first, len(self.values))
        for row, sums in self._beyond(rectangle, at):
            self.total[row] += sums @ features
        if at.low < at.high:
            self.total[at.table].addmm_(rectangle[:, at.middle].mT, features)

    def _beyond(
        self, rectangle: Float[Tensor, "R W"], at: Range
    ) -> Iterator[tuple[int, Float[Tensor, " R"]]]:
        for row, columns in ((0, rectangle[:, : at.low]), (-1, rectangle[:, at.high :])):
            if columns.shape[1]:
                yield row, columns.sum(-1)


class Biases:
    """The sum of all biases per distance of one head.

    Args:
        tables: Values [N] of each bias and the distance of its row 0.
        Lq: Queries of the call.
        Lk: Keys of the call.
        totals: Their gradients, added to by `finish`; None in the forward pass.
    """

    def __init__(
        self,
        tables: list[tuple[Float[Tensor, " N"], int]],
        Lq: int,
        Lk: int,
        totals: list[Float[Tensor, " N"]] | None,
    ) -> None:
        self.tables, self.totals, self.lowest = tables, totals, 1 - Lk
        laid = [expand(values, first, self.lowest, Lq + Lk - 1) for values, first in tables]
        self.values = sum(laid[1:], laid[0])
        self.total = torch.zeros_like(self.values) if totals is not None else None

    def put(self, rectangle: Float[Tensor, "R W"], block: Block) -> None:
        """Write the biases into every row."""
        rectangle.copy_(self._seen(self.values, rectangle, block).expand_as(rectangle))

    def gather(self, rectangle: Float[Tensor, "R W"], block: Block) -> None:
        """Add the columns' sums to the total."""
        assert self.total is not None
        self._seen(self.total, rectangle, block).add_(rectangle.sum(0))

    def finish(self) -> None:
        """From the gradients by distance to those of the tables."""
        if self.totals is not None and self.total is not None:
            for (_, first), total in zip(self.tables, self.totals, strict=True):
                fold(self.total, self.lowest, total, first)

    def _seen(self, by_distance: Tensor, rectangle: Tensor, block: Block) -> Tensor:
        start = -block.last - self.lowest
        return by_distance[start : start + rectangle.shape[1]]


class KeyProduct:
    """Features of keys times a vector per distance, by tiles of keys.

    A tile needs the product of its keys with all distances to the block's rows, of which there are
    more than keys; for all keys at once these would be as many as the call's.

    Args:
        features: Of all keys [Lk, e], times the product's scale.
        values: The table of one head [N, e].
        first: The distance of row 0.
        Lq: Queries of the call.
        total: The table's gradient, added to by `finish`; None in the forward pass.
    """

    def __init__(
        self,
        features: Float[Tensor, "Lk e"],
        values: Float[Tensor, "N e"],
        first: int,
        Lq: int,
        total: Float[Tensor, "N e"] | None,
    ) -> None:
        self.features, self.table, self.first = features, values, first
        Lk = len(features)
        # Distances descend along a tile's columns, so that the next query is the next column.
        self.lowest, count = 1 - Lk, Lq + Lk - 1
        self.rows = expand(values.mT, first, self.lowest, count).mT.flip(0).contiguous()
        self.ends = values[[0, -1]] @ features.mT
        self.of_table = total
        self.of_rows = None if total is None else torch.zeros_like(self.rows)
        self.of_features = None if total is None else torch.zeros_like(features)

    def add_scores(self, pairs: Float[Tensor, "R K"], block: Block) -> None:
        """Add <features[j], row> for every pair."""
        low, high = self._middle(block)
        pairs[:, :low] += self.ends[0, :low]
        pairs[:, high:] += self.ends[1, high : block.keys]
        for keys, rows in self._tiles(block, low, high):
            products = self.features[keys] @ self.rows[rows].mT
            pairs[:, keys] += self._pairs(products, block)

    def add_gradients(self, by_score: Float[Tensor, "R K"], block: Block) -> None:
        """Add what the gradient of the scores is for features and table."""
        of_features, of_rows, of_table = self.of_features, self.of_rows, self.of_table
        assert of_features is not None
        assert of_rows is not None
        assert of_table is not None
        low, high = self._middle(block)
        for row, keys in ((0, slice(0, low)), (-1, slice(high, block.keys))):
            sums = by_score[:, keys].sum(0)
            of_features[keys].addr_(sums, self.table[row])
            of_table[row] += sums @ self.features[keys]
        for keys, rows in self._tiles(block, low, high):
            products = by_score.new_zeros(keys.stop - keys.start, rows.stop - rows.start)
            self._pairs(products, block).copy_(by_score[:, keys])
            of_features[keys].addmm_(products, self.rows[rows])
            of_rows[rows].addmm_(products.mT, self.features[keys])

    def finish(self, into: Float[Tensor, "Lk e"], scale: float) -> None:
        """From the gradients by distance to those of the table; those of features come as well."""
        assert self.of_features is not None
        assert self.of_rows is not None
        assert self.of_table is not None
        into.add_(self.of_features, alpha=scale)
        fold(self.of_rows.flip(0), self.lowest, self.of_table, self.first)

    def _middle(self, block: Block) -> tuple[int, int]:
        """The keys for which some row of the block reads more than an end row."""
        end = self.first + len(self.table) - 1
        low = min(max(block.last - block.R + 2 + self.first, 0), block.keys)
        return low, max(min(max(block.last + end, 0), block.keys), low)

    def _tiles(self, block: Block, low: int, high: int) -> Iterator[tuple[slice, slice]]:
        """Keys, and the rows of all distances to them."""
        for start in range(low, high, block.R):
            stop = min(start + block.R, high)
            highest = stop - 1 - (block.last - block.R + 1)
            row = len(self.rows) - 1 - (highest - self.lowest)
            yield slice(start, stop), slice(row, row + stop - start + block.R - 1)

    def _pairs(self, products: Float[Tensor, "C U"], block: Block) -> Float[Tensor, "R C"]:
        C, U = products.shape
        return products.as_strided((block.R, C), (1, U - 1), C - 1)


def fold(
    by_distance: Float[Tensor, "D *e"], lowest: int, total: Float[Tensor, "N *e"], first: int
) -> None:
    """Add what every distance from `lowest` on has to the row that it reads."""
    N, D = len(total), len(by_distance)
    low = min(max(first - lowest, 0), D)
    high = min(max(first + N - lowest, 0), D)
    total[0] += by_distance[:low].sum(0)
    total[low - first + lowest : high - first + lowest] += by_distance[low:high]
    total[-1] += by_distance[high:].sum(0)
