"""The whole layer as loops over tokens, in float64: projections, attention, output projection.

q[b,h,i] = x[b,i] W_q[:,h] + b_q[h]        k, v likewise from the keys' and values' input
f[b,h,i] = x[b,i] W_f[:,h] + b_f[h]        what a scheme reads of each token, or per head:
f[b,h,i] = x[b,i,hD/H:(h+1)D/H] W_f + b_f
y[b,i]   = sum_h attention(q, k, v)[b,h,i] W_o[h] + b_o
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from relpos.oracle.attention import (
    Mask,
    Numbers,
    Positions,
    Result,
    allowed_pairs,
    attend,
    default_positions,
)
from relpos.oracle.number import Array, Estimate, Leaf, Number, Precision, Tape
from relpos.schemes.base import Projection
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
        query_positions: [Lq] or [B, Lq], or [B or 1, Lq, A].
        key_positions: [Lk] or [B, Lk], or [B or 1, Lk, A].
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
    tables: dict[str, Leaf] = {}
    for parameter in settings.scheme.parameters(H, d):
        if parameter.tied is None:
            tables[parameter.name] = Leaf(tape, tensors[parameter.name], rank=parameter.rank)
        else:
            name, _, part = parameter.tied.partition(".")
            own = kernels[name] if part == "kernel" else biases.get(name)
            heads_per_entry = 1 if name == "query" else H // G
            tables[parameter.name] = _Tied(tape, parameter.shape, own, heads_per_entry)

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
    read: dict[str, Numbers | None] = {}
    projected: dict[str, Leaf] = {}
    for side, projection, leaf, L in (
        ("query", settings.scheme.query_projection, from_x, Lq),
        ("key", settings.scheme.key_projection, from_source, Lk),
    ):
        read[side] = None
        if projection is not None:
            weights = _projection_leaves(tape, projection, tensors)
            read[side] = _features(projection, weights, leaf, (B, H, L))
            projected |= weights
    at, others = default_positions(B, Lq, Lk, query_positions, key_positions)
    allowed = allowed_pairs((B, H, Lq, Lk), mask, settings.causal, at, others)
    heads, distances = attend(
        tape,
        settings.scheme,
        tables,
        q,
        k,
        v,
        read["query"],
        read["key"],
        allowed,
        at,
        others,
        settings.score_scale,
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
        learned = {name: leaf for name, leaf in tables.items() if not isinstance(leaf, _Tied)}
        gradients = {name: leaf.gradient() for name, leaf in {**inputs, **learned}.items()}
        for name, leaf in kernels.items():
            by_head = leaf.gradient()
            gradients[f"{name}.kernel"] = by_head if name == "out" else _heads_second(by_head)
        gradients |= {f"{name}.bias": leaf.gradient() for name, leaf in biases.items()}
        for name, leaf in projected.items():
            by_head = leaf.gradient()
            gradients[name] = _heads_second(by_head) if by_head.value.ndim == 3 else by_head
    rows = {name: leaf.read for name, leaf in tables.items()}
    return Result(Estimate(value, budget), gradients, frozenset(distances), rows)


class _Tied(Leaf):
    """The layer's own array read as a parameter of the scheme, by query head; zero if it has none.

    Args:
        tape: The tape.
        shape: Shape of the parameter, heads first.
        own: The layer's array, one entry per head or group of heads.
        heads_per_entry: Query heads that share an entry.
    """

    def __init__(
        self, tape: Tape, shape: tuple[int, ...], own: Leaf | None, heads_per_entry: int
    ) -> None:
        super().__init__(tape, np.zeros(shape), rank=len(shape) - 1)
        self._own, self._heads_per_entry = own, heads_per_entry

    def __getitem__(self, index: tuple[int, ...]) -> Number:
        """The number of query head `index[0]`."""
        if self._own is None:
            return super().__getitem__(index)
        return self._own[(index[0] // self._heads_per_entry,)]


def _projection_leaves(
    tape: Tape, projection: Projection, tensors: Mapping[str, Array]
) -> dict[str, Leaf]:
    """Kernel and bias of a projection, heads first where each head has its own."""
    kernel = tensors[f"{projection.name}_kernel"]
    by_head = kernel if projection.per_head else kernel.swapaxes(0, 1)
    leaves = {f"{projection.name}_kernel": Leaf(tape, by_head, rank=2)}
    if projection.bias:
        name = f"{projection.name}_bias"
        leaves[name] = Leaf(tape, tensors[name])
    return leaves


def _features(
    projection: Projection, weights: Mapping[str, Leaf], x: Leaf, shape: tuple[int, int, int]
) -> dict[tuple[int, int, int], Number]:
    """What a scheme reads of each token, by (b, h, i)."""
    H, D = shape[1], x.shape[-1]
    features = {}
    for b, h, i in np.ndindex(shape):
        token = x[b, i]
        head: tuple[int, ...] = (h,)
        if projection.per_head:
            token, head = token.take(np.arange(h * D // H, (h + 1) * D // H)), ()
        read = token.through(weights[f"{projection.name}_kernel"][head]).store()
        if projection.bias:
            read = (read + weights[f"{projection.name}_bias"][head]).store()
        features[b, h, i] = read
    return features


def _heads_second(by_head: Estimate) -> Estimate:
    return Estimate(by_head.value.swapaxes(0, 1), by_head.budget.swapaxes(0, 1))
