"""The whole layer as loops over tokens, in float64: projections, attention, output projection.

q[b,h,i] = x[b,i] W_q[:,h] + b_q[h]        k, v likewise from the keys' and values' input
y[b,i]   = sum_h attention(q, k, v)[b,h,i] W_o[h] + b_o
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from relpos.oracle.attention import (
    Mask,
    Positions,
    Result,
    allowed_pairs,
    attend,
    default_positions,
    param_leaves,
)
from relpos.oracle.number import Array, Estimate, Leaf, Number, Precision, Tape
from relpos.settings import AttentionSettings

__all__ = ["layer"]


def layer(
    settings: AttentionSettings,
    tensors: Mapping[str, Array],
    x: Array,
    key_value: Array | None = None,
    *,
    mask: Mask | None = None,
    query_positions: Positions | None = None,
    key_positions: Positions | None = None,
    cotangent: Array | None = None,
    precision: Precision | None = None,
) -> Result:
    """The oracle of the three `RelativeAttention` layers, without dropout.

    Args:
        settings: The layer's settings.
        tensors: Its parameters, named and shaped as `settings.parameters()` says.
        x: Input of the queries [B, Lq, D].
        key_value: Input of the keys and values [B, Lk, D]; None is self-attention.
        mask: Boolean, True = may attend, broadcastable to [B, H, Lq, Lk].
        query_positions: [Lq] or [B, Lq].
        key_positions: [Lk] or [B, Lk].
        cotangent: [B, Lq, D]; if given, gradients of sum(cotangent * output) are returned.
        precision: Working precision of the budgets; float64 if None.

    Returns:
        Output [B, Lq, D], gradients of `x`, `key_value` and every parameter, distances and rows.
    """
    tape = Tape(precision or Precision.of("float64"))
    source = x if key_value is None else key_value
    (B, Lq, _), Lk = x.shape, source.shape[1]
    H, G, d = settings.num_heads, settings.kv_heads, settings.width
    inputs = {"x": Leaf(tape, x)}
    if key_value is not None:
        inputs["key_value"] = Leaf(tape, key_value)
    kernels, biases = {}, {}
    for name in ("query", "key", "value", "out"):
        kernel = tensors[f"{name}.kernel"]
        # One matrix per head, so that the head is a leading axis in every one of them.
        kernels[name] = Leaf(tape, kernel if name == "out" else kernel.swapaxes(0, 1), rank=2)
        if settings.bias:
            biases[name] = Leaf(tape, tensors[f"{name}.bias"])
    tables = param_leaves(settings.scheme, tensors, tape, num_heads=H, head_dim=d)

    def project(name: str, token: Number, head: int) -> Number:
        projected = token.through(kernels[name][(head,)]).store()
        return (projected + biases[name][(head,)]).store() if settings.bias else projected

    from_x, from_source = inputs["x"], inputs.get("key_value", inputs["x"])
    q = {(b, h, i): project("query", from_x[b, i], h) for b, h, i in np.ndindex(B, H, Lq)}
    by_group = {
        name: {(b, g, j): project(name, from_source[b, j], g) for b, g, j in np.ndindex(B, G, Lk)}
        for name in ("key", "value")
    }
    k, v = (
        {(b, h, j): by_group[name][b, h // (H // G), j] for b, h, j in np.ndindex(B, H, Lk)}
        for name in ("key", "value")
    )
    at, others = default_positions(B, Lq, Lk, query_positions, key_positions)
    allowed = allowed_pairs((B, H, Lq, Lk), mask, settings.causal, at, others)
    heads, distances = attend(
        tape, settings.scheme, tables, q, k, v, allowed, at, others, settings.score_scale
    )
    value, budget = np.zeros((B, Lq, x.shape[2])), np.zeros((B, Lq, x.shape[2]))
    outputs: dict[tuple[int, int], Number] = {}
    for b, i in np.ndindex(B, Lq):
        parts = [
            heads[b, h, i].store().through(kernels["out"][(h,)])
            for h in range(H)
            if (b, h, i) in heads
        ]
        if parts:
            total = tape.total(parts).store()
            outputs[b, i] = (total + biases["out"][()]).store() if settings.bias else total
        elif settings.bias:
            outputs[b, i] = biases["out"][()]
        if (b, i) in outputs:
            estimate = outputs[b, i].estimate()
            value[b, i], budget[b, i] = estimate.value, estimate.budget
    gradients: dict[str, Estimate] = {}
    if cotangent is not None:
        tape.backward([(number, cotangent[index]) for index, number in outputs.items()])
        gradients = {name: leaf.gradient() for name, leaf in {**inputs, **tables}.items()}
        for name, leaf in kernels.items():
            by_head = leaf.gradient()
            if name != "out":
                by_head = Estimate(by_head.value.swapaxes(0, 1), by_head.budget.swapaxes(0, 1))
            gradients[f"{name}.kernel"] = by_head
        gradients |= {f"{name}.bias": leaf.gradient() for name, leaf in biases.items()}
    rows = {name: leaf.read for name, leaf in tables.items()}
    return Result(Estimate(value, budget), gradients, frozenset(distances), rows)
