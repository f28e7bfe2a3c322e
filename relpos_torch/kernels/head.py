"""One head, block by block: the output and what normalises it, and back from them.

    E[i,j]   = exp(score[i,j] - largest[i])             total[i] = sum_j E[i,j]
    out[i]   = sum_j E[i,j] (v[j] + value_table[j-i]) / total[i]
    g[i]     = dout[i] / total[i]
    dS[i,j]  = E[i,j] (<g[i], v[j] + value_table[j-i]> - <g[i], out[i]>)

The largest score and the total are kept apart: their sum as one logarithm would lose what the total
has said, where scores are large.

The scores are computed again on the way back, so that nothing that is larger than a block lives
longer than it. dS then goes the way of every term backwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from relpos_torch.kernels.far import Far
from relpos_torch.kernels.masks import not_after
from relpos_torch.kernels.near import Biases, KeyProduct, Vectors
from relpos_torch.kernels.positions import Positions
from relpos_torch.kernels.skewed import Block, Skewed, blocks
from relpos_torch.kernels.terms import Terms

__all__ = ["Gradients", "Head"]


@dataclass(frozen=True)
class Gradients:
    """Where the gradients of one head are added up; shapes as of what they are the gradients of."""

    q: Float[Tensor, "Lq c"]
    k: Float[Tensor, "Lk c"]
    v: Float[Tensor, "Lk d"]
    near: Terms
    far: Terms


#: Powers of 2 take half the time of powers of e.
LOG2E = 1.0 / math.log(2.0)


class Head:
    """One head of one batch row.

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        near: Its terms at default distances [1, 1, ...].
        far: Its other terms.
        mask: Who may attend to whom.
        positions: The positions of the call.
        at: The same of this batch row, written out.
        dropout: Probability of dropping a weight.
        seeds: Of the dropped weights of every block; None if none are dropped.
        rows: Rows per block.
        gradients: Where they are added; None in the forward pass.
    """

    def __init__(
        self,
        q: Float[Tensor, "Lq c"],
        k: Float[Tensor, "Lk c"],
        v: Float[Tensor, "Lk d"],
        near: Terms,
        far: Terms,
        *,
        mask: Bool[Tensor, "..."] | None,
        positions: Positions,
        at: Positions,
        dropout: float,
        seeds: list[int] | None,
        rows: int,
        gradients: Gradients | None = None,
    ) -> None:
        self.q, self.k, self.v = near.scale * q, k.contiguous(), v.contiguous()
        self.scale, self.gradients = near.scale, gradients
        self.mask, self.positions, self.at = mask, positions, at
        self.dropout, self.seeds, self.rows = dropout, seeds, rows
        to = None if gradients is None else gradients.near
        self.query = [
            (
                p.scale * p.features[0, 0],
                p.scale,
                Vectors(
                    p.table.values[0],
                    p.table.first,
                    None if to is None else to.query[n].table.values[0],
                ),
            )
            for n, p in enumerate(near.query)
        ]
        self.key = [
            KeyProduct(
                p.scale * p.features[0, 0],
                p.table.values[0],
                p.table.first,
                len(q),
                None if to is None else to.key[n].table.values[0],
            )
            for n, p in enumerate(near.key)
        ]
        self.bias = None
        if near.bias:
            tables = [(table.values[0], table.first) for table in near.bias]
            totals = None if to is None else [table.values[0] for table in to.bias]
            self.bias = Biases(tables, len(q), len(k), totals)
        self.values = None
        if near.value_table is not None:
            total = None
            if to is not None and to.value_table is not None:
                total = to.value_table.values[0]
            self.values = Vectors(near.value_table.values[0], near.value_table.first, total)
        self.near = near
        self.far = Far(far, None if gradients is None else gradients.far, at)

    @property
    def in_order(self) -> bool:
        """Whether no row sees keys beyond its own place."""
        return self.positions.causal and self.positions.query is None

    @property
    def may_be_empty(self) -> bool:
        """Whether there may be a row that sees nothing."""
        if self.mask is not None or (self.positions.causal and not self.in_order):
            return True
        return self.in_order and len(self.k) < len(self.q)

    def blocks(self) -> Iterator[Block]:
        """The blocks of which some key may be seen."""
        every = blocks(len(self.q), len(self.k), self.rows, self.in_order)
        return (block for block in every if block.keys)

    def forward(
        self,
        memory: Skewed,
        out: Float[Tensor, "Lq d"],
        largest_of: Float[Tensor, " Lq"],
        total_of: Float[Tensor, " Lq"],
    ) -> None:
        """Write the output, the largest scores and the totals.

        Rows that nothing is written to may attend to nothing: their output stays 0.
        """
        for block in self.blocks():
            pairs = self._scores(memory, block)
            largest = pairs.amax(-1, keepdim=True)
            if self.may_be_empty:
                # A row of nothing else than -inf: whatever is subtracted, its exponentials are 0.
                largest.masked_fill_(largest == -torch.inf, 0.0)
            _exp(pairs, largest)
            total = pairs.sum(-1, keepdim=True)
            kept = self._kept(pairs, block)
            if kept is not None:
                pairs.mul_(kept)
            here = pairs @ self.v[: block.keys]
            if self.values is not None:
                memory.trim(block)
                self.values.gather(memory.rectangle(block), here, block)
            more = self.far.values(pairs, block)
            if more is not None:
                here += more
            if self.may_be_empty:
                total.masked_fill_(total == 0.0, 1.0)
            torch.div(here, total, out=out[block.rows])
            largest_of[block.rows], total_of[block.rows] = largest.squeeze(-1), total.squeeze(-1)

    def backward(
        self,
        memory: Skewed,
        other: Skewed,
        out: Float[Tensor, "Lq d"],
        largest: Float[Tensor, " Lq"],
        total: Float[Tensor, " Lq"],
        by_output: Float[Tensor, "Lq d"],
    ) -> None:
        """Add the gradients."""
        to = self.gradients
        assert to is not None
        by_output = by_output / total[:, None]
        delta = (by_output * out).sum(-1, keepdim=True)
        for block in self.blocks():
            rows, keys = block.rows, slice(0, block.keys)
            weights = self._scores(memory, block)
            _exp(weights, largest[rows, None])
            by_score = other.pairs(block)
            given, q, k = by_output[rows], self.q[rows], self.k[keys]
            if self.values is not None:
                self.values.put(other.rectangle(block), given, block, filled=False)
            by_score.addmm_(given, self.v[keys].mT, beta=0.0 if self.values is None else 1.0)
            kept = self._kept(weights, block)
            used = weights if kept is None else weights * kept
            to.v[keys].addmm_(used.mT, given)
            if self.values is not None:
                self._add_value_table(used, memory, given, block)
            self.far.add_value_gradients(by_score, used, given, block)
            if kept is not None:
                by_score.mul_(kept)
            by_score.sub_(delta[rows]).mul_(weights)
            torch.mm(by_score, k, out=to.q[rows])
            to.k[keys].addmm_(by_score.mT, q)
            self._add_terms(by_score, other, block)
        to.q.mul_(self.scale)
        for table, product in zip(self.key, to.near.key, strict=True):
            table.finish(product.features[0, 0], product.scale)
        if self.bias is not None:
            self.bias.finish()

    def _scores(self, memory: Skewed, block: Block) -> Float[Tensor, "R K"]:
        """The scores of a block; -inf where it may not attend."""
        pairs, rectangle, filled = memory.pairs(block), memory.rectangle(block), False
        if self.bias is not None:
            self.bias.put(rectangle, block)
            filled = True
        for features, _, table in self.query:
            table.put(rectangle, features[block.rows], block, filled)
            filled = True
        q, k = self.q[block.rows], self.k[: block.keys]
        pairs.addmm_(q, k.mT, beta=1.0 if filled else 0.0)
        for product in self.key:
            product.add_scores(pairs, block)
        self.far.add_scores(pairs, block)
        if self.in_order:
            rectangle[:, block.keys :] = -torch.inf
        elif self.positions.causal:
            pairs.masked_fill_(~self._not_after(block), -torch.inf)
        if self.mask is not None:
            mask = self.mask[block.rows] if len(self.mask) > 1 else self.mask
            mask = mask[:, : block.keys] if mask.shape[1] > 1 else mask
            pairs.masked_fill_(~mask, -torch.inf)
        return pairs

    def _not_after(self, block: Block) -> Bool[Tensor, "R K"]:
        assert self.at.query is not None
        query = self.at.query[..., block.rows]
        at = Positions(query, self.at.key, block.R, block.keys, causal=True)
        return not_after(at, self.q.device)[0, 0]

    def _kept(self, weights: Float[Tensor, "R K"], block: Block) -> Float[Tensor, "R K"] | None:
        """The factor on each weight: 0 if it is dropped. The same whenever a block is computed."""
        if self.seeds is None:
            return None
        generator = torch.Generator(weights.device).manual_seed(self.seeds[block.number])
        kept = torch.empty_like(weights).bernoulli_(1.0 - self.dropout, generator=generator)
        return kept.div_(1.0 - self.dropout)

    def _add_value_table(
        self, used: Tensor, memory: Skewed, given: Float[Tensor, "R d"], block: Block
    ) -> None:
        assert self.values is not None
        memory.trim(block)
        rectangle = memory.rectangle(block)
        if self.dropout:
            rectangle = torch.zeros_like(rectangle)
            stride = rectangle.shape[1] - 1
            view = rectangle.as_strided(used.shape, (max(stride, 1), 1), block.R - 1)
            view.copy_(used)
        self.values.add_gradient(rectangle, given, block)

    def _add_terms(self, by_score: Float[Tensor, "R K"], memory: Skewed, block: Block) -> None:
        to = self.gradients
        assert to is not None
        if self.query or self.bias is not None:
            memory.trim(block)
            rectangle = memory.rectangle(block)
            for (features, scale, table), product in zip(self.query, to.near.query, strict=True):
                here = torch.zeros_like(features[block.rows])
                table.gather(rectangle, here, block)
                table.add_gradient(rectangle, features[block.rows], block)
                product.features[0, 0, block.rows].add_(here, alpha=scale)
            if self.bias is not None:
                self.bias.gather(rectangle, block)
        for tiles in self.key:
            tiles.add_gradients(by_score, block)
        self.far.add_gradients(by_score, block)


def _exp(scores: Float[Tensor, "R K"], less: Float[Tensor, "R 1"]) -> None:
    """exp(scores - less), in place."""
    scores.sub_(less).mul_(LOG2E).exp2_()
