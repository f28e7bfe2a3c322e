"""Terms that follow no default distances, for a block of one head: computed pair by pair.

Explicit positions, coordinates, biases per pair and decays have no rows of a table in order. Their
scores are those of `dense`, for a few rows at a time, and their gradients those of autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from relpos_torch.kernels.by_distance import query_scores, table_values
from relpos_torch.kernels.dense import position_scores
from relpos_torch.kernels.positions import Positions
from relpos_torch.kernels.skewed import Block
from relpos_torch.kernels.terms import Decay, Product, Table, Terms

__all__ = ["Far", "apply", "is_near", "split"]

#: Pairs for which a function of pairs is asked at once: it may need a network's width for each.
PAIRS = 2**17


def is_near(table: Table, positions: Positions) -> bool:
    """Whether the table is read at the distances of the default positions."""
    return positions.query is None and table.coordinates is None


def split(terms: Terms, positions: Positions) -> tuple[Terms, Terms]:
    """The terms at default distances, and the others."""

    def chosen(near: bool) -> Terms:
        def some(products: tuple[Product, ...]) -> tuple[Product, ...]:
            return tuple(p for p in products if is_near(p.table, positions) == near)

        table = terms.value_table
        return Terms(
            terms.scale,
            query=some(terms.query),
            key=some(terms.key),
            bias=tuple(t for t in terms.bias if is_near(t, positions) == near),
            pair_bias=None if near else terms.pair_bias,
            decay=None if near else terms.decay,
            value_table=table if table and is_near(table, positions) == near else None,
        )

    return chosen(True), chosen(False)


def apply(
    terms: Terms,
    per_query: Callable[[Tensor], Tensor],
    per_key: Callable[[Tensor], Tensor],
    per_head: Callable[[Tensor], Tensor],
) -> Terms:
    """A copy in which functions are applied to what has an entry per query, per key, or neither."""

    def table(old: Table) -> Table:
        return replace(old, values=per_head(old.values))

    def product(old: Product, per_token: Callable[[Tensor], Tensor]) -> Product:
        return replace(old, features=per_token(old.features), table=table(old.table))

    pair, decay = terms.pair_bias, terms.decay
    return replace(
        terms,
        query=tuple(product(old, per_query) for old in terms.query),
        key=tuple(product(old, per_key) for old in terms.key),
        bias=tuple(map(table, terms.bias)),
        pair_bias=pair and replace(pair, params=tuple(map(per_head, pair.params))),
        decay=decay and Decay(per_query(decay.query), per_key(decay.key)),
        value_table=terms.value_table and table(terms.value_table),
    )


@dataclass(frozen=True)
class Far:
    """The far terms of one head.

    Attributes:
        terms: The terms, of one batch row [1, 1, ...] and one head.
        totals: Tensors of the same shapes for their gradients; None in the forward pass.
        positions: Where queries and keys stand, of one batch row.
    """

    terms: Terms
    totals: Terms | None
    positions: Positions

    @property
    def has_scores(self) -> bool:
        """Whether there are any but a table of values."""
        terms = self.terms
        return bool(terms.query or terms.key or terms.bias or terms.pair_bias or terms.decay)

    def add_scores(self, scores: Float[Tensor, "R K"], block: Block) -> None:
        """Add the terms' scores."""
        if not self.has_scores:
            return
        for rows, piece in self._pieces(block):
            terms = self._cut(self.terms, rows, block.keys)
            added = position_scores(terms, self._at(rows, block.keys), scores.device)
            assert added is not None
            scores[piece].unflatten(0, (1, 1, -1)).add_(added)

    def add_gradients(self, by_score: Float[Tensor, "R K"], block: Block) -> None:
        """Add what the gradient of the scores is for each tensor of the terms."""
        if not self.has_scores:
            return
        assert self.totals is not None
        for rows, piece in self._pieces(block):
            with torch.enable_grad():
                leaves: list[Tensor] = []
                terms = _each(self._cut(self.terms, rows, block.keys), _leaf_in(leaves))
                at = self._at(rows, block.keys)
                scores = position_scores(terms, at, by_score.device)
            assert scores is not None
            if not scores.requires_grad:
                continue
            cotangent = by_score[piece].expand(1, 1, -1, -1).sum_to_size(scores.shape)
            found = torch.autograd.grad(scores, leaves, cotangent, allow_unused=True)
            _add(self._cut(self.totals, rows, block.keys), found)

    def values(self, weights: Float[Tensor, "R K"], block: Block) -> Float[Tensor, "R d"] | None:
        """What a table of values adds to the output."""
        table = self.terms.value_table
        if table is None:
            return None
        at = self._at(block.rows, block.keys).at(table.coordinates, weights.device)
        return table_values(weights[None, None], table.values, table.first, at)[0, 0]

    def add_value_gradients(
        self,
        by_weight: Float[Tensor, "R K"],
        weights: Float[Tensor, "R K"],
        by_output: Float[Tensor, "R d"],
        block: Block,
    ) -> None:
        """Add what the gradient of the output is for the weights and for the table of values."""
        table = self.terms.value_table
        if table is None:
            return
        assert self.totals is not None
        assert self.totals.value_table is not None
        at = self._at(block.rows, block.keys).at(table.coordinates, weights.device)
        with torch.enable_grad():
            values = table.values.detach().requires_grad_()
            # sum_i <by_output[i], out[i]> = sum_ij weights[i, j] <by_output[i], row of j - i>
            products = query_scores(by_output[None, None], values, table.first, at)
        by_weight += products.detach()[0, 0]
        (found,) = torch.autograd.grad(products, values, weights[None, None])
        self.totals.value_table.values.add_(found)

    def _pieces(self, block: Block) -> Iterator[tuple[slice, slice]]:
        """Rows of the head, and the same as rows of the block."""
        size = block.R
        if self.terms.pair_bias is not None:
            size = max(1, PAIRS // max(block.keys, 1))
        for start in range(block.start, block.stop, size):
            stop = min(start + size, block.stop)
            yield slice(start, stop), slice(start - block.start, stop - block.start)

    def _cut(self, terms: Terms, rows: slice, keys: int) -> Terms:
        return apply(terms, lambda t: t[:, :, rows], lambda t: t[:, :, :keys], lambda t: t)

    def _at(self, rows: slice, keys: int) -> Positions:
        query, key = self.positions.query, self.positions.key
        assert query is not None
        assert key is not None
        number = rows.stop - rows.start
        return Positions(query[..., rows], key[..., :keys], number, keys, self.positions.causal)


def _each(terms: Terms, function: Callable[[Tensor], Tensor]) -> Terms:
    return apply(terms, function, function, function)


def _leaf_in(leaves: list[Tensor]) -> Callable[[Tensor], Tensor]:
    def leaf(tensor: Tensor) -> Tensor:
        leaves.append(tensor.detach().requires_grad_())
        return leaves[-1]

    return leaf


def _add(totals: Terms, found: tuple[Tensor | None, ...]) -> None:
    gradients = iter(found)

    def add(total: Tensor) -> Tensor:
        gradient = next(gradients)
        return total if gradient is None else total.add_(gradient)

    _each(totals, add)
