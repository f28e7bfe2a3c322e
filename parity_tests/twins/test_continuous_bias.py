"""ContinuousBias: activations, and distances far beyond those that anyone trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parity_tests.twins.twin import draw, passes
from relpos import ContinuousBias, oracle
from relpos.parity import compare

H, L, d = 3, 5, 4


@pytest.mark.parametrize("activation", ["gelu", "tanh"])
def test_explicit_positions_however_far_apart(twin: Any, activation: Any) -> None:
    # Of the activations, those that no row of the roster has.
    scheme = ContinuousBias(hidden=5, activation=activation)
    q, k, v, cotangent = (draw(n, 1, H, L, d) for n in range(4))
    table = scheme.parameters(H, d)
    params = {p.name: draw(n, *p.shape) * 0.5 for n, p in enumerate(table)}
    at = {
        "query_positions": np.array([-900_000, 3, 4, 5, 1_000_000], np.int32),
        "key_positions": np.array([0, 4, 700_000, -5, 6], np.int32),
    }
    truth = oracle.attention(scheme, params, q, k, v, **at, cotangent=cotangent)
    passes(compare(truth.output, twin.attention(scheme, params, q, k, v, **at)))
    got = twin.gradients(scheme, params, q, k, v, **at, cotangent=cotangent)
    for name in params:
        passes(compare(truth.gradients[name], got[name]))
