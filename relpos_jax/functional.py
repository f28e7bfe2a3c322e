"""Relative attention as functions: the scheme is lowered to terms, a kernel does the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

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
from relpos_jax import schemes
from relpos_jax.kernels import KERNELS, Choice, choose_kernel
from relpos_jax.kernels.counted import counted_scores
from relpos_jax.kernels.dense import position_scores
from relpos_jax.kernels.lifting import apply
from relpos_jax.kernels.masks import attention_mask
from relpos_jax.kernels.positions import Positions

__all__ = ["attention", "explain", "relative_scores"]


def attention(
    q: Float[Array, "B Lq H d"],
    k: Float[Array, "B Lk G d"],
    v: Float[Array, "B Lk G d"],
    scheme: Scheme,
    params: Mapping[str, Array] | None = None,
    *,
    mask: Bool[Array, "..."] | None = None,
    causal: bool = False,
    query_positions: Int[Array, "..."] | None = None,
    key_positions: Int[Array, "..."] | None = None,
    query_features: Float[Array, "B Lq H e"] | None = None,
    key_features: Float[Array, "B Lk H f"] | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    dropout_key: Array | None = None,
    implementation: str = "auto",
) -> Float[Array, "B Lq H d"]:
    """Attention with relative positions.

        out[b,i,h] = sum_j softmax(scale * <q[b,i,h], k[b,j,g]> + position terms) * value terms

    with g = h // (H / G); the position and value terms are the scheme's. The axes are those of
    `jax.nn.dot_product_attention`.

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
        dropout: Probability of dropping an attention weight.
        dropout_key: The random key that dropped weights are drawn with; None drops nothing.
        implementation: The kernel: "auto", or "dense", which computes all scores at once, or
            "blockwise", which holds a block of them at a time.

    Returns:
        The output, in the dtype of v. A query that may attend to nothing gives 0.

    Raises:
        ShapeError: Shapes or dtypes do not fit, params included.
        DistanceError: A distance lies beyond a table that may not clip. Where positions are given
            but are traced, or lengths are known by letter only (`jax.export`), the output is NaN
            instead.
        SettingError: The scheme cannot be used with this head width, the kernel is unknown, or
            dropout is no probability below 1.

    Example:
        >>> from relpos import T5
        >>> q = jnp.ones((1, 5, 2, 8))
        >>> attention(q, q, q, T5(), {"bias_table": jnp.ones((2, 32))}).shape
        (1, 5, 2, 8)
    """
    params = {} if params is None else params
    sizes = check_qkv(q.shape, k.shape, v.shape, "BLHd")
    floating = jnp.issubdtype(q.dtype, jnp.floating)
    check_dtypes(str(q.dtype), str(k.dtype), str(v.dtype), floating)
    scheme.check_head_dim(sizes.d)
    real = all(jnp.issubdtype(a.dtype, jnp.floating) for a in params.values())
    shapes = {name: array.shape for name, array in params.items()}
    check_params(scheme.parameters(sizes.H, sizes.d), shapes, real)
    _check_features(scheme, query_features, key_features, sizes)
    positions = Positions.of(query_positions, key_positions, sizes, causal, scheme.position_axes)
    factor = scheme.scale(sizes.d) if scale is None else scale
    check_dropout(dropout)
    widen = _working_precision(q)
    wide = {name: widen(array) for name, array in params.items()}
    features = (None if f is None else widen(f) for f in (query_features, key_features))
    call = schemes.Call(widen(q), widen(k), positions, factor, *features)
    lowered = schemes.lower(scheme, wide, call)
    kernel, _ = choose_kernel(implementation, scheme, sizes.Lq, sizes.Lk)
    if kernel == "dense":
        mask = attention_mask(mask, positions, sizes)
    elif mask is not None:
        check_mask(mask.shape, str(mask.dtype), sizes)
    out = KERNELS[kernel](
        lowered.q,
        lowered.k,
        widen(v),
        lowered.terms,
        mask=mask,
        positions=positions,
        dropout=dropout,
        dropout_key=dropout_key,
    )
    return out.astype(v.dtype)


def explain(
    q: Float[Array, "B Lq H d"],
    k: Float[Array, "B Lk G d"],
    v: Float[Array, "B Lk G d"],
    scheme: Scheme,
    *,
    implementation: str = "auto",
) -> Choice:
    """Which kernel `attention` takes for such a call, and why. Nothing is computed.

    Args:
        q: Queries [B, Lq, H, d]; a layer's are its projected heads.
        k: Keys [B, Lk, G, d].
        v: Values [B, Lk, G, d].
        scheme: The relative position scheme.
        implementation: As of `attention`.

    Returns:
        The kernel's name, and the reason in words.

    Raises:
        ShapeError: Shapes do not fit.
        SettingError: There is no such kernel, or it does not serve the scheme.

    Example:
        >>> from relpos import RoPE
        >>> q = jnp.zeros((1, 1000, 2, 8))
        >>> explain(q, q, q, RoPE("half")).kernel
        'blockwise'
    """
    sizes = check_qkv(q.shape, k.shape, v.shape, "BLHd")
    scheme.check_head_dim(sizes.d)
    return choose_kernel(implementation, scheme, sizes.Lq, sizes.Lk)


def relative_scores(
    q: Float[Array, "Lq d"],
    k: Float[Array, "Lk d"],
    scheme: Scheme,
    params: Mapping[str, Array] | None = None,
    *,
    query_positions: Int[Array, "..."] | None = None,
    key_positions: Int[Array, "..."] | None = None,
    query_features: Float[Array, "Lq e"] | None = None,
    key_features: Float[Array, "Lk f"] | None = None,
    scale: float | None = None,
) -> Float[Array, "Lq Lk"]:
    """The position part of one head's scores: all that a scheme adds to scale * <q, k>.

    Written for one head and one sequence; `jax.vmap` lifts it over heads and batch.

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
        >>> q = jnp.ones((3, 5, 8))  # three heads
        >>> def one_head(q, table):
        ...     return relative_scores(q, q, T5(), {"bias_table": table})
        >>> jax.vmap(one_head)(q, jnp.ones((3, 32))).shape
        (3, 5, 5)
    """
    q, k = q[None, :, None], k[None, :, None]
    params = {} if params is None else {name: table[None] for name, table in params.items()}
    features = [None if f is None else f[None, :, None] for f in (query_features, key_features)]
    sizes = check_qkv(q.shape, k.shape, k.shape, "BLHd")
    floating = jnp.issubdtype(q.dtype, jnp.floating)
    check_dtypes(str(q.dtype), str(k.dtype), str(k.dtype), floating)
    scheme.check_head_dim(sizes.d)
    real = all(jnp.issubdtype(a.dtype, jnp.floating) for a in params.values())
    shapes = {name: array.shape for name, array in params.items()}
    check_params(scheme.parameters(1, sizes.d), shapes, real)
    _check_features(scheme, features[0], features[1], sizes)
    positions = Positions.of(query_positions, key_positions, sizes, False, scheme.position_axes)
    factor = scheme.scale(sizes.d) if scale is None else scale
    widen = _working_precision(q)
    wide = {name: widen(table) for name, table in params.items()}
    read = (None if f is None else widen(f) for f in features)
    call = schemes.Call(widen(q), widen(k), positions, factor, *read)
    lowered = schemes.lower(scheme, wide, call)
    scores = jnp.zeros((sizes.Lq, sizes.Lk), call.q.dtype)
    if lowered.q is not call.q or lowered.k is not call.k:
        content, plain = (side.q[0, :, 0] @ side.k[0, :, 0].T for side in (lowered, call))
        scores = factor * (content - plain)
    one_head = apply(lowered.terms, lambda a: a[0, :, 0], lambda a: a[0])
    one_row = jax.tree.map(lambda array: array[0], positions)
    added = position_scores(one_head, one_row)
    scores = scores if added is None else scores + added
    if one_head.counted is not None:
        q, k = lowered.q[0, :, 0], lowered.k[0, :, 0]
        scores = scores + counted_scores(one_head.counted, q, factor * (q @ k.T), None, one_row)
    return scores


def _check_features(scheme: Scheme, query: Array | None, key: Array | None, sizes: Sizes) -> None:
    of_query, of_key = (None if f is None else f.shape for f in (query, key))
    floating = all(jnp.issubdtype(f.dtype, jnp.floating) for f in (query, key) if f is not None)
    check_features(scheme, (of_query, of_key), floating, sizes, "BLHd")


def _working_precision(q: Array) -> Callable[[Array], Array]:
    """What widens operands to the precision of scores, softmax and sums.

    That is float32 for half-precision inputs. Each operand is widened once, whatever number of
    terms read it, so that its gradient is summed before it is rounded.
    """
    dtype = jnp.float32 if q.dtype.itemsize < 4 else q.dtype
    return lambda operand: operand.astype(dtype)
