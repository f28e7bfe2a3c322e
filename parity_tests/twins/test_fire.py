"""FIRE: where it begins, what a share is, and keys on both sides of the query."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import relpos_torch
from parity_tests.twins.twin import draw, fails, passes
from relpos import Fire, oracle
from relpos.oracle import Estimate
from relpos.parity import compare

H, L, d = 3, 7, 4


def test_the_share_of_the_position_beyond_the_threshold_and_of_the_threshold_before_it() -> None:
    # A network that gives back a share of any sign: max(0, x) - max(0, -x).
    one = np.array(np.log(np.e - 1.0))
    params = {
        "rate": one,
        "stretch": one,
        "hidden_kernel": np.array([[1.0, -1.0]]),
        "hidden_bias": np.zeros(2),
        "output_kernel": np.array([1.0, -1.0]),
        "output_bias": np.zeros(()),
    }
    x, scheme = np.zeros((L, d)), Fire(hidden=2, threshold=3.0)
    found = oracle.relative_scores(scheme, params, x, x).output
    i, j = np.arange(L)[:, None], np.arange(L)[None, :]
    expected = np.log(1.0 + abs(i - j)) / np.log(1.0 + np.maximum(i, 3))
    passes(compare(Estimate(expected, found.budget), found.value))
    # At most 1 in causal attention, and the same for keys as far after the query.
    assert found.value[np.tril_indices(L)].max() <= 1.0 + 2.0**-50
    assert found.value[3, 6] == found.value[3, 0]


def test_a_fresh_layer_has_the_numbers_of_the_paper() -> None:
    layer = relpos_torch.RelativeAttention(12, 3, Fire(), dtype=torch.float64)
    fresh = np.log1p(np.exp([layer.rate.item(), layer.stretch.item()]))
    expected = np.array([0.1, 1.0])
    # A logarithm and a power, there and back.
    passes(compare(Estimate(expected, 2.0**-50 * np.ones(2)), fresh))


def test_the_position_of_a_query_and_not_its_distance_alone_counts(twin: Any) -> None:
    scheme = Fire(hidden=5, threshold=2.0)
    q, k, v = (draw(n, 1, H, L, d) for n in range(3))
    params = {p.name: draw(n, *p.shape) for n, p in enumerate(scheme.parameters(H, d))}
    at = np.arange(L, dtype=np.int32) + 11
    moved = {"query_positions": at, "key_positions": at}
    truth = oracle.attention(scheme, params, q, k, v, **moved).output
    passes(compare(truth, twin.attention(scheme, params, q, k, v, **moved)))
    fails(compare(truth, twin.attention(scheme, params, q, k, v)))
