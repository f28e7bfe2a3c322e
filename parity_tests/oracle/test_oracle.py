"""The oracle against derivatives taken another way, and its budgets against real rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relpos import AttentionSettings, oracle
from relpos.oracle import Estimate, Precision
from relpos.oracle.number import Leaf, Tape
from relpos.parity import Verdict, compare
from relpos.parity.roster import FIRST_ROWS, ROSTER, Row
from relpos.schemes import NoPosition, Scheme, Shaw

B, H, G, Lq, Lk, d = 2, 2, 1, 3, 5, 6
STEP = 1e-3
Arrays = dict[str, NDArray[np.float64]]


def draw(seed: int, *shape: int) -> NDArray[np.float64]:
    """Normal numbers, the same on every machine."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def weighed(output: Estimate, cotangent: NDArray[np.float64]) -> Estimate:
    """sum(cotangent * output), with independent errors."""
    error = np.sqrt(((output.budget * cotangent) ** 2).sum())
    return Estimate(np.array((output.value * cotangent).sum()), np.array(error))


def derivative(
    loss: Callable[[Arrays], Estimate], inputs: Arrays, name: str, index: tuple[int, ...]
) -> Estimate:
    """The derivative by one entry, from values alone, and the error it may have.

    Four values at steps of h leave an error of the order h ** 4, which is a sixteenth of what steps
    of 2h leave: the difference of the two bounds it. The rounding that the values are allowed is
    divided by h.
    """

    def at(steps: int) -> Estimate:
        moved = {**inputs, name: inputs[name].copy()}
        moved[name][index] += steps * STEP
        return loss(moved)

    losses = {steps: at(steps) for steps in (-4, -2, -1, 1, 2, 4)}
    values = {steps: float(found.value) for steps, found in losses.items()}

    def central(h: int) -> float:
        near, far = values[h] - values[-h], values[2 * h] - values[-2 * h]
        return (8.0 * near - far) / (12.0 * h * STEP)

    rounding = max(float(found.budget) for found in losses.values()) / STEP
    return Estimate(np.array(central(1)), np.array(abs(central(1) - central(2)) + rounding))


def check_gradients(
    loss: Callable[[Arrays], Estimate], inputs: Arrays, gradients: dict[str, Estimate]
) -> None:
    """Compare a few entries of every gradient with derivatives taken from values alone."""
    for name, array in inputs.items():
        picked = np.random.default_rng(len(name)).integers(0, array.size, 2)
        for index in (np.unravel_index(n, array.shape) for n in picked):
            expected = derivative(loss, inputs, name, index)
            comparison = compare(expected, gradients[name].value[index], what=name)
            assert comparison.verdict is Verdict.PASS, str(comparison)


def features(scheme: Scheme, *lead: int) -> Arrays:
    """What a scheme reads of each token."""
    return {
        name: draw(7, *lead, L, projection.width)
        for name, projection, L in (
            ("query_features", scheme.query_projection, Lq),
            ("key_features", scheme.key_projection, Lk),
        )
        if projection is not None
    }


@pytest.mark.parametrize("row", FIRST_ROWS.values(), ids=lambda row: row.name)
def test_gradients_are_the_derivatives_of_the_value(row: Row) -> None:
    scheme, d = row.scheme, row.d
    inputs = {
        "q": draw(1, B, H, Lq, d),
        "k": draw(2, B, G, Lk, d),
        "v": draw(3, B, G, Lk, d),
        **features(scheme, B, H),
        **{p.name: draw(4, *p.shape) for p in scheme.parameters(H, d)},
    }
    cotangent = draw(5, B, H, Lq, d)
    mask = np.random.default_rng(6).random((B, 1, Lq, Lk)) > 0.2
    mask[1, 0, 1] = False

    def call(inputs: Arrays, **options: Any) -> oracle.Result:
        params = {p.name: inputs[p.name] for p in scheme.parameters(H, d)}
        read = {name: inputs[name] for name in features(scheme, B, H)}
        qkv = inputs["q"], inputs["k"], inputs["v"]
        return oracle.attention(scheme, params, *qkv, mask=mask, causal=True, **read, **options)

    def loss(inputs: Arrays) -> Estimate:
        return weighed(call(inputs).output, cotangent)

    check_gradients(loss, inputs, call(inputs, cotangent=cotangent).gradients)


def test_gradients_of_a_layer_are_the_derivatives_of_its_value() -> None:
    settings = AttentionSettings(7, H, Shaw(2, 1), num_kv_heads=G, head_dim=3, causal=True)
    inputs = {
        "x": draw(1, B, Lq, 7),
        "key_value": draw(2, B, Lk, 7),
        **{p.name: draw(3, *p.shape) for p in settings.parameters()},
    }
    cotangent = draw(5, B, Lq, 7)

    def call(inputs: Arrays, **options: Any) -> oracle.Result:
        return oracle.layer(settings, inputs, inputs["x"], inputs["key_value"], **options)

    def loss(inputs: Arrays) -> Estimate:
        return weighed(call(inputs).output, cotangent)

    check_gradients(loss, inputs, call(inputs, cotangent=cotangent).gradients)


@pytest.mark.parametrize("row", ROSTER.values(), ids=lambda row: row.name)
def test_scores_are_the_content_and_what_the_scheme_adds(row: Row) -> None:
    scheme, d = row.scheme, row.d
    q, k = draw(1, Lq, d), draw(2, Lk, d)
    params = {p.name: draw(4, *p.shape) for p in scheme.parameters(1, d)}
    read = features(scheme)
    one_head = {n: a[0] for n, a in params.items()}
    added = oracle.relative_scores(scheme, one_head, q, k, scale=0.3, **read)
    scores = 0.3 * q @ k.T + added.output.value
    weights = np.exp(scores)
    weights /= weights.sum(-1, keepdims=True)
    # One-hot values bring the weights out; tables of values are left out of that.
    keyed = {n: a if n != "value_table" else np.zeros_like(params[n]) for n, a in params.items()}
    one_hot = np.eye(Lk, d)
    out = oracle.attention(
        scheme,
        keyed,
        q[None, None],
        k[None, None],
        one_hot[None, None],
        scale=0.3,
        **{name: array[None, None] for name, array in read.items()},
    )
    comparison = compare(
        Estimate(out.output.value[0, 0, :, :Lk], out.output.budget[0, 0, :, :Lk]), weights
    )
    assert comparison.verdict is Verdict.PASS, str(comparison)


def test_a_float32_computation_uses_a_part_of_its_budget_and_no_more() -> None:
    # Numpy's own float32, as long as a real sequence: neither beyond the budget nor far below it.
    L, wide = 41, 32
    q, k, v = (draw(n, L, wide).astype(np.float32) for n in range(3))
    scores = (q @ k.T) * np.float32(wide**-0.5)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    got = (weights / weights.sum(-1, keepdims=True)) @ v
    exact = (a.astype(np.float64)[None, None] for a in (q, k, v))
    truth = oracle.attention(NoPosition(), {}, *exact, precision=Precision.of("float32"))
    ratio = compare(truth.output, got[None, None]).ratio
    assert 0.02 < ratio <= 1.0


def test_a_float16_detour_is_far_beyond_the_float32_budget() -> None:
    L, wide = 11, 8
    q, k, v = (draw(n, 1, 1, L, wide) for n in range(3))
    truth = oracle.attention(NoPosition(), {}, q, k, v, precision=Precision.of("float32"))
    rounded = (a.astype(np.float16).astype(np.float64) for a in (q, k, v))
    detour = oracle.attention(NoPosition(), {}, *rounded)
    assert compare(truth.output, detour.output.value).ratio > 100.0


def test_a_leaf_neither_wraps_nor_clamps() -> None:
    leaf = Leaf(Tape(Precision.of("float64")), np.zeros((2, 3, 4)))
    for index in ((0, 3), (-1, 0), (2, 0), (0,)):
        with pytest.raises(IndexError, match="outside"):
            leaf[index]
    assert leaf[1, 2] is leaf[1, 2]
    assert leaf.read == [(1, 2)]
