"""Relative attention as functions: the scheme is lowered to terms, a kernel does the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from relpos.checks import (
    Sizes,
    check_dropout,
    check_dtypes,
    check_features,
    check_mask,
    check_params,
    check_qkv,
)
from relpos.schemes import Scheme
from relpos_torch import schemes
from relpos_torch.kernels import KERNELS, Choice, choose_kernel
from relpos_torch.kernels.counted import counted_scores
from relpos_torch.kernels.dense import position_scores
from relpos_torch.kernels.masks import attention_mask
from relpos_torch.kernels.positions import Positions

__all__ = ["attention", "explain", "relative_scores"]


def attention(
    q: Float[Tensor, "B H Lq d"],
    k: Float[Tensor, "B G Lk d"],
    v: Float[Tensor, "B G Lk d"],
    scheme: Scheme,
    params: Mapping[str, Tensor] | None = None,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    query_positions: Int[Tensor, "..."] | None = None,
    key_positions: Int[Tensor, "..."] | None = None,
    query_features: Float[Tensor, "B H Lq e"] | None = None,
    key_features: Float[Tensor, "B H Lk f"] | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    implementation: str = "auto",
) -> Float[Tensor, "B H Lq d"]:
    """Attention with relative positions.

        out[b,h,i] = sum_j softmax(scale * <q[b,h,i], k[b,g,j]> + position terms) * value terms

    with g = h // (H / G); the position and value terms are the scheme's. The axes are those of
    `torch.nn.functional.scaled_dot_product_attention`.

    Args:
        q: Queries.
        k: Keys; G divides H.
        v: Values.
        scheme: The relative position scheme, for example `relpos.Shaw(16, 16)`.
        params: Its parameters, named and shaped as `scheme.parameters(H, d)` says.
        mask: True = may attend; four axes that broadcast to [B, H, Lq, Lk]. What is masked must
            still be finite: 0 times NaN is NaN.
        causal: No query attends to a key at a later position. With the default positions the
            queries are aligned to the END of the keys.
        query_positions: Whole positions [Lq] or [B, Lq]; the default is Lk - Lq .. Lk - 1. For a
            scheme with A axes of positions also [B or 1, Lq, A]; causality then goes by the order
            of the tokens.
        key_positions: Whole positions [Lk], [B, Lk] or [B or 1, Lk, A]; the default is
            0 .. Lk - 1.
        query_features: What some schemes read of each query's token: `scheme.query_projection`.
        key_features: What some schemes read of each key's token: `scheme.key_projection`.
        scale: The factor on <q, k>; None takes `scheme.scale(d)`.
        dropout: Probability of dropping an attention weight, drawn from torch's global generator.
        implementation: The kernel: "auto", or "dense", which computes all scores at once, or
            "blockwise", which holds a block of them at a time, or "fused", torch's own attention
            for schemes that leave no term beside rotated queries and keys. Only "dense" gives
            second derivatives.

    Returns:
        The output, in the dtype of v. A query that may attend to nothing gives 0.

    Raises:
        ShapeError: Shapes or dtypes do not fit, params included.
        DistanceError: A distance lies beyond a table that may not clip. Where positions are given
            but cannot be seen (compiled, vmapped), the output is NaN instead.
        SettingError: The scheme cannot be used with this head width, the kernel is unknown, or
            dropout is no probability below 1.

    Example:
        >>> from relpos import T5
        >>> q = torch.randn(1, 2, 5, 8)
        >>> attention(q, q, q, T5(), {"bias_table": torch.randn(2, 32)}).shape
        torch.Size([1, 2, 5, 8])
    """
    params = {} if params is None else params
    sizes = check_qkv(tuple(q.shape), tuple(k.shape), tuple(v.shape), "BHLd")
    check_dtypes(str(q.dtype), str(k.dtype), str(v.dtype), q.is_floating_point())
    scheme.check_head_dim(sizes.d)
    real = all(t.is_floating_point() for t in params.values())
    shapes = {name: tuple(tensor.shape) for name, tensor in params.items()}
    check_params(scheme.parameters(sizes.H, sizes.d), shapes, real)
    _check_features(scheme, query_features, key_features, sizes)
    positions = Positions.of(query_positions, key_positions, sizes, causal, scheme.position_axes)
    factor = scheme.scale(sizes.d) if scale is None else scale
    check_dropout(dropout)
    with _working_precision(q) as widen:
        wide = {name: widen(tensor) for name, tensor in params.items()}
        features = (None if f is None else widen(f) for f in (query_features, key_features))
        call = schemes.Call(widen(q), widen(k), positions, factor, *features)
        lowered = schemes.lower(scheme, wide, call)
        kernel, _ = choose_kernel(implementation, scheme, sizes.Lq, sizes.Lk, q.device)
        if kernel == "dense":
            mask = attention_mask(mask, positions, sizes, q.device)
        elif mask is not None:
            check_mask(tuple(mask.shape), str(mask.dtype), sizes)
        out = KERNELS[kernel](
            lowered.q,
            lowered.k,
            widen(v),
            lowered.terms,
            mask=mask,
            positions=positions,
            dropout=dropout,
        )
    return out.to(v.dtype)


def explain(
    q: Float[Tensor, "B H Lq d"],
    k: Float[Tensor, "B G Lk d"],
    v: Float[Tensor, "B G Lk d"],
    scheme: Scheme,
    *,
    implementation: str = "auto",
) -> Choice:
    """Which kernel `attention` takes for such a call, and why. Nothing is computed.

    Args:
        q: Queries [B, H, Lq, d]; a layer's are its projected heads.
        k: Keys [B, G, Lk, d].
        v: Values [B, G, Lk, d].
        scheme: The relative position scheme.
        implementation: As of `attention`.

    Returns:
        The kernel's name, and the reason in words.

    Raises:
        ShapeError: Shapes do not fit.
        SettingError: There is no such kernel, or it does not serve the scheme.

    Example:
        >>> from relpos import ALiBi
        >>> q = torch.randn(1, 2, 1000, 8)
        >>> explain(q, q, q, ALiBi()).kernel
        'blockwise'
    """
    sizes = check_qkv(tuple(q.shape), tuple(k.shape), tuple(v.shape), "BHLd")
    scheme.check_head_dim(sizes.d)
    return choose_kernel(implementation, scheme, sizes.Lq, sizes.Lk, q.device)


def relative_scores(
    q: Float[Tensor, "Lq d"],
    k: Float[Tensor, "Lk d"],
    scheme: Scheme,
    params: Mapping[str, Tensor] | None = None,
    *,
    query_positions: Int[Tensor, "..."] | None = None,
    key_positions: Int[Tensor, "..."] | None = None,
    query_features: Float[Tensor, "Lq e"] | None = None,
    key_features: Float[Tensor, "Lk f"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "Lq Lk"]:
    """The position part of one head's scores: all that a scheme adds to scale * <q, k>.

    Written for one head and one sequence; `torch.func.vmap` lifts it over heads and batch.

    Args:
        q: Queries.
        k: Keys.
        scheme: The relative position scheme.
        params: One head's parameters: as the scheme's table, without the heads axis.
        query_positions: Whole positions; the default is Lk - Lq .. Lk - 1.
        key_positions: Whole positions; the default is 0 .. Lk - 1.
        query_features: What some schemes read of each query's token: `scheme.query_projection`.
        key_features: What some schemes read of each key's token: `scheme.key_projection`.
        scale: The factor on <q, k>; None takes `scheme.scale(d)`.

    Returns:
        The scores, in float32 for half-precision inputs. A rotation adds the difference that it
        makes to scale * <q, k>.

    Raises:
        ShapeError: Shapes or dtypes do not fit, params included.
        DistanceError: A distance lies beyond a table that may not clip.

    Example:
        >>> from relpos import T5
        >>> q = torch.randn(3, 5, 8)  # three heads
        >>> def one_head(q, table):
        ...     return relative_scores(q, q, T5(), {"bias_table": table})
        >>> torch.func.vmap(one_head)(q, torch.randn(3, 32)).shape
        torch.Size([3, 5, 5])
    """
    q, k = q[None, None], k[None, None]
    params = {} if params is None else {name: table[None] for name, table in params.items()}
    features = [None if f is None else f[None, None] for f in (query_features, key_features)]
    sizes = check_qkv(tuple(q.shape), tuple(k.shape), tuple(k.shape), "BHLd")
    check_dtypes(str(q.dtype), str(k.dtype), str(k.dtype), q.is_floating_point())
    scheme.check_head_dim(sizes.d)
    real = all(t.is_floating_point() for t in params.values())
    shapes = {name: tuple(tensor.shape) for name, tensor in params.items()}
    check_params(scheme.parameters(1, sizes.d), shapes, real)
    _check_features(scheme, features[0], features[1], sizes)
    positions = Positions.of(query_positions, key_positions, sizes, False, scheme.position_axes)
    factor = scheme.scale(sizes.d) if scale is None else scale
    with _working_precision(q) as widen:
        wide = {name: widen(table) for name, table in params.items()}
        read = (None if f is None else widen(f) for f in features)
        call = schemes.Call(widen(q), widen(k), positions, factor, *read)
        lowered = schemes.lower(scheme, wide, call)
        scores = call.q.new_zeros(1, 1, sizes.Lq, sizes.Lk)
        if lowered.q is not call.q or lowered.k is not call.k:
            scores = factor * (lowered.q @ lowered.k.mT - call.q @ call.k.mT)
        added = position_scores(lowered.terms, positions, q.device)
        scores = scores if added is None else scores + added
        if lowered.terms.counted is not None:
            content = factor * (lowered.q @ lowered.k.mT)
            counted = counted_scores(lowered.terms.counted, lowered.q, content, None, positions)
            scores = scores + counted
        return scores[0, 0]


def _check_features(scheme: Scheme, query: Tensor | None, key: Tensor | None, sizes: Sizes) -> None:
    of_query, of_key = (None if f is None else tuple(f.shape) for f in (query, key))
    floating = all(f.is_floating_point() for f in (query, key) if f is not None)
    check_features(scheme, (of_query, of_key), floating, sizes, "BHLd")


@contextmanager
def _working_precision(q: Tensor) -> Iterator[Callable[[Tensor], Tensor]]:
    """What widens operands to the precision of scores, softmax and sums, with autocast off.

    That is float32 for half-precision inputs. Each operand is widened once, whatever number of
    terms read it, so that its gradient is summed before it is rounded.
    """
    dtype = torch.float32 if q.dtype.itemsize < 4 else q.dtype
    device = q.device.type
    with torch.autocast(device, enabled=False) if device != "meta" else nullcontext():
        yield lambda operand: operand.to(dtype)
