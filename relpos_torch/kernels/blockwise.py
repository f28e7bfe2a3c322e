"""The kernel that works row block by row block: memory grows with the length, not with its square.

`head` has the formulas of one head, forwards and backwards; here it is called for all of them, and
made known to autograd. What autograd has to see comes in one flat list: q, k, v and every tensor of
the terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from relpos.errors import SettingError
from relpos_torch.kernels.far import apply, split
from relpos_torch.kernels.head import Gradients, Head
from relpos_torch.kernels.positions import Positions
from relpos_torch.kernels.skewed import Skewed, rows_per_block
from relpos_torch.kernels.terms import Terms
from relpos_torch.kernels.workers import over_heads

__all__ = ["blockwise"]


@torch.compiler.disable
def blockwise(
    q: Float[Tensor, "B H Lq c"],
    k: Float[Tensor, "B G Lk c"],
    v: Float[Tensor, "B G Lk d"],
    terms: Terms,
    *,
    mask: Bool[Tensor, "..."] | None,
    positions: Positions,
    dropout: float,
) -> Float[Tensor, "B H Lq d"]:
    """Attention with the scores [R, Lk] of a few rows in memory at a time.

    Forwards and backwards; the output can be differentiated once, by autograd and by `torch.func`.
    `torch.func.vmap` calls the kernel once per entry; `torch.compile` does not look into it: the
    graph is cut in two there.

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        terms: The scheme's terms; `counted` is not served.
        mask: Who may attend to whom, broadcastable to [B, H, Lq, Lk]; causality is that of the
            positions, and comes in addition.
        positions: Where queries and keys stand.
        dropout: Probability of dropping a weight. Which are dropped follows from a number per
            block, drawn from torch's global generator.

    Returns:
        The output.
    """
    (B, H, Lq), rows = q.shape[:3], rows_per_block(q.shape[2], k.shape[2])
    # Not one number that is counted up: a generator promises nothing of close seeds.
    drawn = torch.randint(2**62, (B, H, -(-Lq // rows))).tolist() if dropout else None
    settings = _Settings(terms, positions, dropout, drawn, rows)
    extras = map(_keepable, (mask, positions.query, positions.key))
    out: Tensor = _Attend.apply(settings, *extras, q, k, v, *_tensors(terms))[0]
    return out


def _keepable(tensor: Tensor | None) -> Tensor | None:
    """What was made in inference mode can be kept for the way back only as a copy."""
    if tensor is None or not tensor.is_inference() or torch.is_inference_mode_enabled():
        return tensor
    return tensor.clone()


@dataclass(frozen=True)
class _Settings:
    """All of a call but its tensors; those that stand in it are not read.

    Attributes:
        terms: The form of the terms.
        positions: The form of the positions.
        dropout: Probability of dropping a weight.
        seeds: Of the dropped weights of every batch row, head and block; None if none are.
        rows: Rows per block.
    """

    terms: Terms
    positions: Positions
    dropout: float
    seeds: list[list[list[int]]] | None
    rows: int

    def heads(
        self, operands: tuple[Any, ...], given: tuple[Tensor, ...] | None = None
    ) -> Callable[[int, int], Head]:
        """What makes a head of a row of the batch, with the gradients that are to be added to."""
        mask, query, key, q, k, v, *tensors = operands
        (B, H, Lq), Lk = q.shape[:3], k.shape[2]
        per_group = H // k.shape[1]
        at = Positions(query, key, Lq, Lk, self.positions.causal)
        near, far = split(_with(self.terms, tensors), at)
        totals = None if given is None else split(_with(self.terms, given[3:]), at)
        if mask is not None:
            mask = mask.expand(B, H, *mask.shape[2:])
        written = at.tensors(q.device)

        def make(b: int, h: int) -> Head:
            g = h // per_group
            query, key = (t[b] if t.ndim == 2 and len(t) > 1 else t.flatten() for t in written)
            gradients = None
            if given is not None and totals is not None:
                of_q, of_k, of_v = given[:3]
                of_near, of_far = (_of_head(part, b, h) for part in totals)
                gradients = Gradients(of_q[b, h], of_k[b, h], of_v[b, h], of_near, of_far)
            return Head(
                q[b, h],
                k[b, g],
                v[b, g],
                _of_head(near, b, h),
                _of_head(far, b, h),
                mask=None if mask is None else mask[b, h],
                positions=at,
                at=Positions(query, key, Lq, Lk, at.causal),
                dropout=self.dropout,
                seeds=None if self.seeds is None else self.seeds[b][h],
                rows=self.rows,
                gradients=gradients,
            )

        return make


class _Attend(torch.autograd.Function):
    """Output, largest scores and totals."""

    @staticmethod
    def forward(settings: _Settings, *operands: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Block by block."""
        q, k, v = operands[3:6]
        out = q.new_zeros(*q.shape[:3], v.shape[-1])
        largest, total = q.new_zeros(q.shape[:3]), q.new_ones(q.shape[:3])
        make = settings.heads(operands)

        def work(heads: range) -> None:
            memory = Skewed(settings.rows, k.shape[2], q)
            for h in heads:
                for b in range(len(q)):
                    make(b, h).forward(memory, out[b, h], largest[b, h], total[b, h])

        over_heads(work, q.device, q.shape[1])
        return out, largest, total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep the operands and the results: all that is not of the size of the scores."""
        settings, *operands = inputs
        ctx.settings = settings
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*operands, *output)

    @staticmethod
    def backward(ctx: Any, by_output: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """By a function of its own, so that `vmap` can lift this too."""
        found = _Back.apply(ctx.settings, by_output, *ctx.saved_tensors)
        return (None,) * 4 + tuple(found)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        """Entry by entry."""
        return _one_by_one(_Attend, info.batch_size, in_dims, inputs)


class _Back(torch.autograd.Function):
    """The gradients of q, k, v and the tensors of the terms."""

    @staticmethod
    def forward(settings: _Settings, by_output: Tensor, *saved: Any) -> tuple[Tensor, ...]:
        """Block by block, each computed again."""
        *operands, out, largest, total = saved
        q, k, v, *tensors = operands[3:]
        B, H = q.shape[:2]
        # Each head adds to memory of its own: what heads share is summed at the end, in order.
        totals = [torch.zeros_like(q, memory_format=torch.contiguous_format)]
        totals += [t.new_zeros(B, H, *t.shape[2:]) for t in (k, v)]
        totals += [t.new_zeros(shape) for t, shape in _shapes(settings.terms, tensors, H)]
        make = settings.heads(tuple(operands), tuple(totals))

        def work(heads: range) -> None:
            memory, other = (Skewed(settings.rows, k.shape[2], q) for _ in range(2))
            for h in heads:
                for b in range(B):
                    kept = (out[b, h], largest[b, h], total[b, h])
                    make(b, h).backward(memory, other, *kept, by_output[b, h])

        over_heads(work, q.device, H)
        for n, group in ((1, k), (2, v)):
            totals[n] = totals[n].unflatten(1, (group.shape[1], -1)).sum(2)
        for n, tensor in enumerate(tensors):
            totals[n + 3] = totals[n + 3].sum_to_size(tensor.shape)
        return tuple(totals)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing is kept: see `backward`."""

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[None, ...]:
        """Refused."""
        raise SettingError(
            "the kernel blockwise can be differentiated once",
            got="a derivative of its gradient",
            expected="implementation='dense'",
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        """Entry by entry."""
        return _one_by_one(_Back, info.batch_size, in_dims, inputs)


def _one_by_one(
    function: type[torch.autograd.Function],
    size: int,
    in_dims: tuple[int | None, ...],
    inputs: tuple[Any, ...],
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    results = [
        function.apply(
            *(
                x if dim is None else x.select(dim, n)
                for x, dim in zip(inputs, in_dims, strict=True)
            )
        )
        for n in range(size)
    ]
    stacked = tuple(torch.stack(parts) for parts in zip(*results, strict=True))
    return stacked, (0,) * len(stacked)


def _tensors(terms: Terms) -> list[Tensor]:
    """Every tensor of the terms, in the order of `apply`."""
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    apply(terms, keep, keep, keep)
    return found


def _with(terms: Terms, tensors: Any) -> Terms:
    """Terms of this form with other tensors."""
    others: Iterator[Tensor] = iter(tensors)

    def take(_: Tensor) -> Tensor:
        return next(others)

    return apply(terms, take, take, take)


def _of_head(terms: Terms, b: int, h: int) -> Terms:
    """The terms of one head in one row of the batch, without copies."""

    def token(tensor: Tensor) -> Tensor:
        return tensor[b : b + 1, h : h + 1]

    def head(tensor: Tensor) -> Tensor:
        return tensor if len(tensor) == 1 else tensor[h : h + 1]

    return apply(terms, token, token, head)


def _shapes(terms: Terms, tensors: list[Tensor], H: int) -> list[tuple[Tensor, tuple[int, ...]]]:
    """Every tensor of the terms, and its shape where each head has its own."""
    found: list[tuple[Tensor, tuple[int, ...]]] = []

    def token(tensor: Tensor) -> Tensor:
        found.append((tensor, tuple(tensor.shape)))
        return tensor

    def head(tensor: Tensor) -> Tensor:
        found.append((tensor, (H, *tensor.shape[1:])))
        return tensor

    apply(_with(terms, tensors), token, token, head)
    return found
