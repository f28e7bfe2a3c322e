"""The kernel that works row block by row block: memory grows with the length, not with its square.

For the rows i of a block, all keys j that they see, and one head:

    s[i,j]  = scale * <q[i], k[j]> + position terms        (`strips`)
    e[i,j]  = exp(s[i,j] - largest[i]),   total[i] = sum_j e[i,j]
    out[i]  = sum_j e[i,j] * (v[j] + value_table[j-i]) / total[i]

Forward, the output, the largest scores and the totals are kept: one number for both, their
logarithm, would lose what the total has said where scores are large. Backward, each block's scores
are computed once more:

    g  = dout / total,   dp[i,j] = <g[i], v[j] + value_table[j-i]>
    ds = e * (dp - sum of g * out)

and what ds means for q, k and the terms is added up from block to block, in their order, so that
it is the same in every run. The flow is that of FlashAttention (Dao et al. 2022, arXiv 2205.14135)
with whole rows of keys for tiles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from relpos_jax.kernels.blocks import (
    Block,
    Plan,
    add,
    cut,
    over_blocks,
    plan_blocks,
    rows_per_block,
)
from relpos_jax.kernels.by_distance import table_values
from relpos_jax.kernels.lifting import SHARED, apply, by_head, lifted
from relpos_jax.kernels.masks import not_after
from relpos_jax.kernels.positions import Positions
from relpos_jax.kernels.strips import (
    Band,
    Strips,
    other_scores,
    prepare,
    query_scores,
    scratch,
    unskewed,
)
from relpos_jax.kernels.terms import Product, Table, Terms

__all__ = ["blockwise"]


def blockwise(
    q: Float[Array, "B Lq H c"],
    k: Float[Array, "B Lk G c"],
    v: Float[Array, "B Lk G d"],
    terms: Terms,
    *,
    mask: Bool[Array, "..."] | None,
    positions: Positions,
    dropout: float,
    dropout_key: Array | None,
) -> Float[Array, "B Lq H d"]:
    """Attention with a block of scores in memory at a time.

    Works under `jax.jit`, `jax.vmap`, `jax.grad` and `jax.checkpoint`. The second derivative is
    that of the backward pass, and keeps what all of its blocks compute: it needs memory for all
    scores. Forward-mode derivatives (`jax.jvp`) are refused by JAX; the kernel `dense` has them.

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        terms: The scheme's terms, nothing counted among them.
        mask: Who may attend to whom, broadcastable to [B, H, Lq, Lk].
        positions: Where queries and keys stand, and whether that forbids later keys.
        dropout: Probability of dropping a weight.
        dropout_key: Where dropped weights are drawn from, query by query; None drops nothing.

    Returns:
        The output.
    """
    (B, Lq, H, _), (Lk, G) = q.shape, k.shape[1:3]
    k, v = jnp.repeat(k, H // G, axis=2), jnp.repeat(v, H // G, axis=2)
    # Accelerators want all heads at once; a processor's cores have enough to do with one.
    together = jax.default_backend() != "cpu"
    rows = rows_per_block(B * H if together else 1, Lk)
    in_order = positions.causal and positions.query is None
    settings = _Settings(plan_blocks(Lq, Lk, rows, in_order), dropout, together)
    positions = replace(positions, axes=None)
    keys = None
    if dropout_key is not None and dropout > 0.0:
        keys = jax.random.split(dropout_key, (B, H))
    return _attend(settings, q, k, v, terms, mask, keys, positions)


@dataclass(frozen=True)
class _Settings:
    plan: Plan
    dropout: float
    together: bool


# Of all heads: derivatives of a loop over heads would compute ahead, for all blocks and at once,
# what the blocks cut from arrays that the heads share.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(settings: _Settings, *arguments: Any) -> Array:
    out, _ = _forward(settings, *arguments)
    return out


def _forward(settings: _Settings, *arguments: Any) -> tuple[Array, Any]:
    """The output, and what the backward pass needs."""
    found = _lifted(functools.partial(_forward_head, settings), settings, arguments, ())
    return jnp.swapaxes(found[0], 1, 2), (arguments, *found)


def _backward(settings: _Settings, kept: Any, dout: Array) -> tuple[Any, ...]:
    """The gradients of q, k, v and the terms."""
    arguments, *found = kept
    of_output = (*found, jnp.swapaxes(dout, 1, 2))
    head = functools.partial(_backward_head, settings)
    *dqkv, dterms = _lifted(head, settings, arguments, of_output)
    dq, dk, dv = (jnp.swapaxes(gradient, 1, 2) for gradient in dqkv)
    per_token = functools.partial(jnp.swapaxes, axis1=1, axis2=2)
    dterms = apply(dterms, per_token, lambda by_row: by_row.sum(0))
    shared = apply(arguments[3], lambda a: False, lambda a: len(a) == 1)
    dterms = jax.tree.map(
        lambda shared, gradient: gradient.sum(0, keepdims=True) if shared else gradient,
        shared,
        dterms,
    )
    return dq, dk, dv, dterms, None, None, None


_attend.defvjp(_forward, _backward)


def _lifted(
    head: Callable[..., Any], settings: _Settings, arguments: tuple[Any, ...], more: tuple[Any, ...]
) -> Any:
    """What one head's function gives for all, with first axes B and H."""
    q, k, v, terms, mask, keys, positions = arguments
    terms, *of_terms = by_head(terms, SHARED)
    of_mask = []
    if mask is not None:
        of_mask = [SHARED if size == 1 else 0 for size in mask.shape[:2]]
        mask = mask.reshape(*(size for size in mask.shape[:2] if size > 1), *mask.shape[2:])
    of_keys = [0] * (keys is not None)

    def axes(axis: int, of_position: int) -> tuple[Any, ...]:
        places = jax.tree.map(lambda _: of_position, positions)
        of_one = (of_terms[axis], of_mask[axis : axis + 1], of_keys, places, [0] * len(more))
        return (axis, axis, axis, *of_one)

    heads = lifted(head, axes(1, SHARED), together=settings.together)
    batch = lifted(heads, axes(0, 0), together=settings.together)
    return batch(q, k, v, terms, mask, keys, positions, more)


def _forward_head(
    settings: _Settings,
    q: Array,
    k: Array,
    v: Array,
    terms: Terms,
    mask: Array | None,
    dropout_key: Any,
    positions: Positions,
    of_output: tuple[()],
) -> tuple[Array, Array, Array]:
    """One head's output [Lq, d], largest scores and totals [Lq]; the mask is [Lq or 1, Lk or 1]."""
    plan, dropout = settings.plan, settings.dropout
    ready = prepare(terms, positions, plan)
    parts = ready.parts()
    keys_last = k.T

    def step(block: Block, carry: tuple[Array, ...], spare: _Scratch) -> tuple[Any, _Scratch]:
        strips = cut(parts, ready, block)
        at = block.positions(positions)
        spare = spare.of(block, strips.band)
        scores = _near_scores(cut("rows", q, block), spare.keys, strips, block)
        other = other_scores(strips, block.local(), at)
        scores = scores if other is None else scores + other
        allowed = _allowed(mask, block, at)
        if allowed is not None:
            # The dtype's own lowest number, not infinity: scores stay finite all the way.
            scores = jnp.where(allowed, scores, jnp.finfo(scores.dtype).min)
        largest = scores.max(-1, keepdims=True)
        weights = jnp.exp(scores - largest)
        if allowed is not None:
            weights = jnp.where(allowed, weights, 0.0)
        total = weights.sum(-1, keepdims=True)
        total = jnp.where(total == 0.0, 1.0, total)
        kept = _dropped(weights, dropout, dropout_key, block)
        rows = kept @ cut("keys", v, block)
        if strips.near.value_table is not None:
            spare, by_distance = spare.unskewed(kept)
            rows = rows + by_distance @ strips.near.value_table.values.T
        if strips.other.value_table is not None:
            rows = rows + _values(kept, strips.other.value_table, at)
        found = (rows / total, largest[:, 0], total[:, 0])
        written = (
            lax.dynamic_update_slice_in_dim(whole, part, block.start, 0)
            for whole, part in zip(carry, found, strict=True)
        )
        return tuple(written), spare

    of_row = jnp.zeros(plan.Lq, q.dtype)
    nothing = (jnp.zeros((plan.Lq, v.shape[1]), q.dtype), of_row, of_row)
    return over_blocks(
        plan, step, nothing, functools.partial(_Scratch.made, ready, keys_last, plan)
    )


def _backward_head(
    settings: _Settings,
    q: Array,
    k: Array,
    v: Array,
    terms: Terms,
    mask: Array | None,
    dropout_key: Any,
    positions: Positions,
    of_output: tuple[Array, Array, Array, Array],
) -> tuple[Array, Array, Array, Terms]:
    """One head's gradients of q, k, v and the terms."""
    plan, dropout = settings.plan, settings.dropout
    out, largest, total, dout = of_output
    dout = dout / total[:, None]
    ready, pull_ready = jax.vjp(lambda terms: prepare(terms, positions, plan), terms)
    parts = ready.parts()
    # Sums over rows are computed transposed, [d, R] times [R, K], and so are what they add up to:
    # that reads the scores as they lie, and takes a third of the time.
    keys_last, values_last = k.T, v.T
    mean = (dout * out).sum(-1)

    def step(block: Block, carry: Any, spare: _Scratch) -> tuple[Any, _Scratch]:
        dq, dk, dv, dready = carry
        strips = cut(parts, ready, block)
        near, at = strips.near, block.positions(positions)
        rows, drows, largest_of, mean_of = (cut("rows", a, block) for a in (q, dout, largest, mean))
        fresh = block.fresh()
        if fresh is not None:
            drows = jnp.where(fresh[:, None], drows, 0.0)
            mean_of = jnp.where(fresh, mean_of, 0.0)

        spare = spare.of(block, strips.band)
        scores = _near_scores(rows, spare.keys, strips, block)
        rest = replace(strips, near=replace(near, query=(), value_table=None), band=None)
        other, pull_other = jax.vjp(lambda rest: other_scores(rest, block.local(), at), rest)
        scores = scores if other is None else scores + other
        lower = scores - largest_of[:, None]
        allowed = _allowed(mask, block, at)
        if allowed is not None:
            # Before the power too, where what is masked may be too large for one.
            lower = jnp.where(allowed, lower, 0.0)
        weights = jnp.exp(lower)
        if allowed is not None:
            weights = jnp.where(allowed, weights, 0.0)
        used = _dropped(weights, dropout, dropout_key, block)
        dused = drows @ values_last[:, : block.keys]
        dtable, dother_table = near.value_table, strips.other.value_table
        if dtable is not None:
            dused = dused + query_scores(drows, dtable.values, block.keys)
            spare, by_distance = spare.unskewed(used)
            dtable = replace(dtable, values=drows.T @ by_distance)
        if dother_table is not None:
            _, pull_values = jax.vjp(lambda w, table: _values(w, table, at), used, dother_table)
            more, dother_table = pull_values(drows)
            dused = dused + more
        dweights = _dropped(dused, dropout, dropout_key, block)
        dscores = weights * (dweights - mean_of[:, None])

        drest = jax.tree.map(jnp.zeros_like, rest)
        if other is not None:
            (drest,) = pull_other(dscores)
        dquery = near.query
        if dquery:
            spare, by_distance = spare.unskewed(dscores)
            dquery = tuple(_dproduct(product, by_distance) for product in near.query)
        drows_of_q, dends = _split(dscores @ spare.keys.T, q.shape[1])
        dband = strips.band
        if dband is not None:
            of_band = lax.dynamic_slice_in_dim(
                dscores, block.begin(dband.span), dband.span.width, 1
            )
            spare, by_distance = spare.unskewed_band(of_band)
            dband = _dband(dband, by_distance, dends)
        dstrips = Strips(
            replace(drest.near, query=dquery, value_table=dtable),
            drest.bias,
            dband,
            replace(drest.other, value_table=dother_table),
        )
        dready = add(parts, dready, dstrips, block)
        dq = add("rows", dq, terms.scale * drows_of_q, block)
        dk = dk.at[:, : block.keys].add((terms.scale * rows).T @ dscores)
        dv = dv.at[:, : block.keys].add(drows.T @ used)
        return (dq, dk, dv, dready), spare

    zeros = jax.tree.map(jnp.zeros_like, (q, keys_last, values_last, ready))
    made = functools.partial(_Scratch.made, ready, keys_last, plan)
    dq, dk, dv, dready = over_blocks(plan, step, zeros, made)
    (dterms,) = pull_ready(dready)
    return dq, dk.T, dv.T, dterms


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["keys", "wide", "narrow"], meta_fields=[]
)
@dataclass(frozen=True)
class _Scratch:
    """What blocks write to, one after the other.

    Attributes:
        keys: The keys, transposed; with a band two rows more, which are 1 for the keys on its left
            and for those on its right, so that its ends are channels of the content.
        wide: Zeros for `unskewed`; None where there is nothing to unskew.
        narrow: Likewise of the band.
    """

    keys: Any
    wide: Any
    narrow: Any

    @classmethod
    def made(cls, ready: Strips, keys_last: Array, plan: Plan, keys: int) -> _Scratch:
        dtype, near, narrow = keys_last.dtype, ready.near, None
        keys_last = keys_last[:, :keys]
        if ready.band is not None:
            keys_last = jnp.pad(keys_last, ((0, 2), (0, 0)))
            narrow = scratch(plan.rows, ready.band.span.width, dtype)
        unskews = bool(near.query) or near.value_table is not None
        return cls(keys_last, scratch(plan.rows, keys, dtype) if unskews else None, narrow)

    def of(self, block: Block, band: Band | None) -> _Scratch:
        """With the two rows of a block."""
        if band is None:
            return self
        begin, key = block.begin(band.span), jnp.arange(block.keys)
        beside = jnp.stack((key < begin, key >= begin + band.span.width))
        rows = beside.astype(self.keys.dtype)
        at = self.keys.shape[0] - 2
        return replace(self, keys=lax.dynamic_update_slice_in_dim(self.keys, rows, at, 0))

    def unskewed(self, pairs: Array) -> tuple[_Scratch, Array]:
        wide, by_distance = unskewed(self.wide, pairs)
        return replace(self, wide=wide), by_distance

    def unskewed_band(self, pairs: Array) -> tuple[_Scratch, Array]:
        narrow, by_distance = unskewed(self.narrow, pairs)
        return replace(self, narrow=narrow), by_distance


def _near_scores(rows: Array, keys: Array, strips: Strips, block: Block) -> Array:
    """The content, and products of queries with near tables."""
    rows, band = strips.near.scale * rows, strips.band
    if band is not None:
        pairs = zip(band.products, band.ends, strict=True)
        first, *others = ((p.scale * p.features) @ ends for p, ends in pairs)
        beside = sum(others, first)
        rows = jnp.concatenate((rows, beside), 1)
    scores = rows @ keys
    if band is not None:
        begin, width = block.begin(band.span), band.span.width
        inside = lax.dynamic_slice_in_dim(scores, begin, width, 1)
        for product in band.products:
            features = product.scale * product.features
            inside = inside + query_scores(features, product.table.values, width)
        scores = lax.dynamic_update_slice_in_dim(scores, inside, begin, 1)
    for product in strips.near.query:
        features = product.scale * product.features
        scores = scores + query_scores(features, product.table.values, block.keys)
    return scores


def _split(channels: Array, width: int) -> tuple[Array, Array]:
    """Channels of the keys and those beside."""
    return channels[:, :width], channels[:, width:]


def _dband(band: Band, by_distance: Array, dends: Array) -> Band:
    """The gradients of a band, in its place."""
    products, ends = [], []
    for product, of_ends in zip(band.products, band.ends, strict=True):
        found = _dproduct(product, by_distance)
        more = product.scale * (dends @ of_ends.T)
        products.append(replace(found, features=found.features + more))
        ends.append((product.scale * product.features).T @ dends)
    return replace(band, products=tuple(products), ends=tuple(ends))


def _dproduct(product: Product, by_distance: Array) -> Product:
    """The gradients of a product, in its place."""
    features, values = product.features, product.table.values
    dvalues = (product.scale * features).T @ by_distance
    return replace(
        product,
        features=product.scale * (by_distance @ values.T),
        table=replace(product.table, values=dvalues),
    )


def _values(weights: Array, table: Table, positions: Positions) -> Array:
    """sum_j weights[i,j] * row of j - i, by position."""
    return table_values(weights, table.values, table.first, positions)


def _allowed(mask: Array | None, block: Block, positions: Positions) -> Array | None:
    """Which of a block's pairs may attend."""
    seen = None
    if positions.causal:
        seen = not_after(positions)
    if mask is not None:
        if len(mask) > 1:
            mask = cut("rows", mask, block)
        mask = mask[:, : block.keys]
        seen = mask if seen is None else mask & seen
    return seen


def _dropped(weights: Array, dropout: float, key: Any, block: Block) -> Array:
    """The weights that are kept, enlarged for those that are not.

    Every query draws for itself, so that neither the size of a block nor the pass matters.
    """
    if key is None:
        return weights

    def keep(query: Array) -> Array:
        own = jax.random.fold_in(key, query)
        return jax.random.bernoulli(own, 1.0 - dropout, (block.plan.Lk,))[: block.keys]

    kept = jax.vmap(keep)(block.start + jnp.arange(block.plan.rows))
    return jnp.where(kept, weights / (1.0 - dropout), 0.0)
