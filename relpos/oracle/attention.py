"""Attention and its gradients as loops over batch rows, heads, queries and keys, in float64.

    out[b,h,i] = sum_j softmax(score)[i,j] * value(v[b,g,j], i, j)
    score[i,j] = score(q[b,h,i], k[b,g,j], i, j)

with g = h // (H / G), over the keys j that query i may attend to. A query that may attend to
nothing has output 0. Nothing here is shared with the twins: not the tables by distance, not the
masks, not the defaults for positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relpos.oracle.number import Array, Estimate, Leaf, Number, Precision, Tape, softmax_mean
from relpos.oracle.schemes import Token, scheme_oracle
from relpos.schemes import Scheme

__all__ = [
    "Result",
    "allowed_pairs",
    "attend",
    "attention",
    "default_positions",
    "param_leaves",
    "relative_scores",
]

Mask = NDArray[np.bool_]
#: Numbers by batch row, head and token.
Numbers = Mapping[tuple[int, int, int], Number]
Positions = NDArray[np.integer]


@dataclass(frozen=True)
class Result:
    """What an oracle says about one call.

    Attributes:
        output: The output and its budget.
        gradients: Of sum(cotangent * output), by input and parameter name; empty without cotangent.
        distances: Every distance j - i that some query read.
        rows: For each parameter table, the entries that some query read.
    """

    output: Estimate
    gradients: dict[str, Estimate] = field(default_factory=dict)
    distances: frozenset[int] = frozenset()
    rows: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)


def param_leaves(
    scheme: Scheme, params: Mapping[str, Array], tape: Tape, *, num_heads: int, head_dim: int
) -> dict[str, Leaf]:
    """The scheme's parameters as leaves, each entry of the rank that its axes say."""
    return {
        p.name: Leaf(tape, params[p.name], rank=p.rank)
        for p in scheme.parameters(num_heads, head_dim)
    }


def attend(
    tape: Tape,
    scheme: Scheme,
    params: Mapping[str, Leaf],
    q: Numbers,
    k: Numbers,
    v: Numbers,
    query_features: Numbers | None,
    key_features: Numbers | None,
    allowed: Mask,
    query_positions: Positions,
    key_positions: Positions,
    scale: float,
) -> tuple[dict[tuple[int, int, int], Number], set[int]]:
    """Attention over numbers: the outputs [b, h, i] that are not exactly 0, and distances read.

    Args:
        tape: Where operations are recorded.
        scheme: The scheme.
        params: Its parameters.
        q: Queries by (b, h, i).
        k: Keys by (b, h, j), one for every query head.
        v: Values by (b, h, j), one for every query head.
        query_features: What the scheme reads of each query's token, by (b, h, i).
        key_features: What the scheme reads of each key's token, by (b, h, j).
        allowed: Who may attend to whom [B, H, Lq, Lk].
        query_positions: [B, Lq] or [B, Lq, A].
        key_positions: [B, Lk] or [B, Lk, A].
        scale: The factor on <q, k>.
    """
    oracle = scheme_oracle(scheme, params, tape, allowed.shape[1])
    outputs: dict[tuple[int, int, int], Number] = {}
    distances: set[int] = set()
    B, H, Lq, Lk = allowed.shape
    for b in range(B):
        oracle.begin(query_positions[b], key_positions[b])
        for h in range(H):
            for i in range(Lq):
                if not allowed[b, h, i].any():
                    continue
                features = None if query_features is None else query_features[b, h, i]
                at, along = _place(query_positions[b], i, Lk - Lq)
                query = Token(q[b, h, i], at, features, axes=along)
                keys = []
                for j in range(Lk):
                    features = None if key_features is None else key_features[b, h, j]
                    at, along = _place(key_positions[b], j, 0)
                    keys.append(Token(k[b, h, j], at, features, bool(allowed[b, h, i, j]), along))
                scores = oracle.scores(h, query, keys, scale)
                values = []
                for j, key in enumerate(keys):
                    if key.allowed:
                        values.append(oracle.value(h, v[b, h, j], query, key))
                        distances.add(key.position - query.position)
                outputs[b, h, i] = softmax_mean(tape, scores, values)
    return outputs, distances


def allowed_pairs(
    shape: tuple[int, int, int, int],
    mask: Mask | None,
    causal: bool,
    query_positions: Positions,
    key_positions: Positions,
) -> Mask:
    """Who may attend to whom, pair by pair."""
    B, _, Lq, Lk = shape
    allowed = np.ones(shape, bool) if mask is None else np.broadcast_to(mask, shape).copy()
    for b in range(B):
        for i in range(Lq):
            for j in range(Lk):
                at, other = _place(query_positions[b], i, Lk - Lq), _place(key_positions[b], j, 0)
                if causal and other[0] > at[0]:
                    allowed[b, :, i, j] = False
    return allowed


def default_positions(
    B: int, Lq: int, Lk: int, query_positions: Positions | None, key_positions: Positions | None
) -> tuple[Positions, Positions]:
    """Keys stand at 0 .. Lk-1 and the queries at the last Lq places, unless told otherwise."""
    if query_positions is None:
        query_positions = np.array([Lk - Lq + i for i in range(Lq)])
    if key_positions is None:
        key_positions = np.array(range(Lk))
    axes = [at.shape[2] for at in (query_positions, key_positions) if at.ndim == 3]
    if not axes:
        return (
            np.broadcast_to(query_positions, (B, Lq)),
            np.broadcast_to(key_positions, (B, Lk)),
        )
    # One axis where the other side has several: all of them are equal.
    query_positions, key_positions = (
        at if at.ndim == 3 else at[..., None] for at in (query_positions, key_positions)
    )
    return (
        np.broadcast_to(query_positions, (B, Lq, axes[0])),
        np.broadcast_to(key_positions, (B, Lk, axes[0])),
    )


def _place(positions: Positions, n: int, first: int) -> tuple[int, tuple[int, ...]]:
    """Position of token n, and its axes if positions have several: then the order counts."""
    if positions.ndim == 1:
        return int(positions[n]), ()
    return first + n, tuple(int(p) for p in positions[n])


def attention(
    scheme: Scheme,
    params: Mapping[str, Array],
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Mask | None = None,
    causal: bool = False,
    query_positions: Positions | None = None,
    key_positions: Positions | None = None,
    query_features: Array | None = None,
    key_features: Array | None = None,
    scale: float | None = None,
    cotangent: Array | None = None,
    precision: Precision | None = None,
) -> Result:
    """The oracle of `relpos_torch.attention` and `relpos_jax.attention`.

    Args:
        scheme: The scheme.
        params: Its parameters, named and shaped as its table says.
        q: Queries [B, H, Lq, d] (torch's order of axes).
        k: Keys [B, G, Lk, d].
        v: Values [B, G, Lk, d].
        mask: Boolean, True = may attend, broadcastable to [B, H, Lq, Lk].
        causal: Keys at later positions may not be attended to.
        query_positions: [Lq] or [B, Lq], or [B or 1, Lq, A].
        key_positions: [Lk] or [B, Lk], or [B or 1, Lk, A].
        query_features: [B, H, Lq, e], for schemes that read them.
        key_features: [B, H, Lk, e], for schemes that read them.
        scale: The factor on <q, k>; None takes the scheme's own.
        cotangent: [B, H, Lq, d]; if given, gradients of sum(cotangent * output) are returned.
        precision: Working precision of the budgets; float64 if None.

    Returns:
        Output [B, H, Lq, d], gradients of `q`, `k`, `v`, the features and every parameter,
        distances and rows.

    Example:
        >>> from relpos import NoPosition
        >>> x = np.ones((1, 1, 2, 3))
        >>> attention(NoPosition(), {}, x, x, x).output.value.tolist()
        [[[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]]]
    """
    B, H, Lq, d = q.shape
    G, Lk = k.shape[1], k.shape[2]
    tape = Tape(precision or Precision.of("float64"))
    leaves = {"q": Leaf(tape, q), "k": Leaf(tape, k), "v": Leaf(tape, v)}
    features = {"query_features": query_features, "key_features": key_features}
    leaves |= {name: Leaf(tape, given) for name, given in features.items() if given is not None}
    tables = param_leaves(scheme, params, tape, num_heads=H, head_dim=d)
    at, others = default_positions(B, Lq, Lk, query_positions, key_positions)
    allowed = allowed_pairs((B, H, Lq, Lk), mask, causal, at, others)
    queries = {(b, h, i): leaves["q"][b, h, i] for b, h, i in np.ndindex(B, H, Lq)}
    keys = {(b, h, j): leaves["k"][b, h // (H // G), j] for b, h, j in np.ndindex(B, H, Lk)}
    values = {(b, h, j): leaves["v"][b, h // (H // G), j] for b, h, j in np.ndindex(B, H, Lk)}
    outputs, distances = attend(
        tape,
        scheme,
        tables,
        queries,
        keys,
        values,
        _by_token(leaves.get("query_features")),
        _by_token(leaves.get("key_features")),
        allowed,
        at,
        others,
        scheme.scale(d) if scale is None else scale,
    )
    value, budget = np.zeros(q.shape), np.zeros(q.shape)
    for index, number in outputs.items():
        estimate = number.estimate()
        value[index], budget[index] = estimate.value, estimate.budget
    gradients = {}
    if cotangent is not None:
        tape.backward([(number, cotangent[index]) for index, number in outputs.items()])
        gradients = {name: leaf.gradient() for name, leaf in {**leaves, **tables}.items()}
    rows = {name: leaf.read for name, leaf in tables.items()}
    return Result(Estimate(value, budget), gradients, frozenset(distances), rows)


def _by_token(features: Leaf | None) -> Numbers | None:
    if features is None:
        return None
    B, H, L, _ = features.shape
    return {(b, h, i): features[b, h, i] for b, h, i in np.ndindex(B, H, L)}


def relative_scores(
    scheme: Scheme,
    params: Mapping[str, Array],
    q: Array,
    k: Array,
    *,
    query_positions: Positions | None = None,
    key_positions: Positions | None = None,
    query_features: Array | None = None,
    key_features: Array | None = None,
    scale: float | None = None,
    head: int = 0,
    num_heads: int = 1,
    cotangent: Array | None = None,
    precision: Precision | None = None,
) -> Result:
    """The oracle of `relative_scores`: what the scheme adds to scale * <q, k>, for one head.

    Args:
        scheme: The scheme.
        params: One head's parameters: as the scheme's table, without the heads axis.
        q: Queries [Lq, d].
        k: Keys [Lk, d].
        query_positions: [Lq] or [1, Lq, A].
        key_positions: [Lk] or [1, Lk, A].
        query_features: [Lq, e], for schemes that read them.
        key_features: [Lk, e], for schemes that read them.
        scale: The factor on <q, k>; None takes the scheme's own.
        head: Which head this is, for schemes with numbers that are fixed for every head.
        num_heads: How many heads there are.
        cotangent: [Lq, Lk]; if given, gradients of sum(cotangent * output) are returned.
        precision: Working precision of the budgets; float64 if None.

    Returns:
        Scores [Lq, Lk], gradients of `q`, `k`, the features and every parameter, distances and
        rows.
    """
    (Lq, d), Lk = q.shape, len(k)
    tape = Tape(precision or Precision.of("float64"))
    leaves = {"q": Leaf(tape, q), "k": Leaf(tape, k)}
    features = {"query_features": query_features, "key_features": key_features}
    leaves |= {name: Leaf(tape, given) for name, given in features.items() if given is not None}
    with_head = {name: array[None] for name, array in params.items()}
    tables = param_leaves(scheme, with_head, tape, num_heads=1, head_dim=d)
    at, others = default_positions(1, Lq, Lk, query_positions, key_positions)
    oracle = scheme_oracle(scheme, tables, tape, num_heads, head)
    oracle.begin(at[0], others[0])
    factor = scheme.scale(d) if scale is None else scale
    value, budget = np.zeros((Lq, Lk)), np.zeros((Lq, Lk))
    outputs: dict[tuple[int, int], Number] = {}

    def token(side: str, n: int, place: tuple[int, tuple[int, ...]]) -> Token:
        read = leaves.get("query_features" if side == "q" else "key_features")
        seen = None if read is None else read[(n,)]
        return Token(leaves[side][(n,)], place[0], seen, axes=place[1])

    keys = [token("k", j, _place(others[0], j, 0)) for j in range(Lk)]
    queries = [token("q", i, _place(at[0], i, Lk - Lq)) for i in range(Lq)]
    for i, query in enumerate(queries):
        for j, added in enumerate(oracle.relative(0, query, keys, factor)):
            if added is not None:
                outputs[i, j] = added
                estimate = added.estimate()
                value[i, j], budget[i, j] = estimate.value, estimate.budget
    gradients = {}
    if cotangent is not None:
        tape.backward([(number, cotangent[index]) for index, number in outputs.items()])
        gradients = {name: leaf.gradient() for name, leaf in leaves.items()}
        gradients |= {
            name: Estimate(estimate.value[0], estimate.budget[0])
            for name, estimate in ((name, leaf.gradient()) for name, leaf in tables.items())
        }
    rows = {name: leaf.read for name, leaf in tables.items()}
    distances = frozenset(key.position - query.position for query in queries for key in keys)
    return Result(Estimate(value, budget), gradients, distances, rows)
