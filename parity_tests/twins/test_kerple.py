"""KERPLE: known numbers, numbers that stay positive, and the power that is ALiBi."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parity_tests.twins.twin import draw, passes
from relpos import ALiBi, Kerple, oracle
from relpos.oracle import Estimate
from relpos.parity import compare

H, L, d = 3, 7, 4


def test_the_logarithm_of_known_numbers(twin: Any) -> None:
    # p = 1 and a = 2, at the distances from -3 to 0.
    params = {"penalty": np.log(np.e - 1.0), "rate": np.log(np.e**2 - 1.0)}
    x, arrays = np.zeros((4, d)), {name: np.array(number) for name, number in params.items()}
    truth = oracle.relative_scores(Kerple(), arrays, x[-1:], x).output
    known = np.array([[-1.945910149055, -1.609437912434, -1.098612288668, 0.0]])
    passes(compare(Estimate(known, np.full((1, 4), 5e-13)), truth.value))
    got = twin.scores(Kerple(), arrays, x[-1:], x)
    passes(compare(truth, got))
    assert got[0, -1] == 0.0


@pytest.mark.parametrize("kind", ["log", "power"])
def test_numbers_far_below_and_above_0_still_give_penalties_and_slopes(
    twin: Any, kind: Any
) -> None:
    scheme = Kerple(kind)
    q, k, v, cotangent = (draw(n, 1, H, L, d) for n in range(4))
    params = {
        p.name: np.array([-20.0, 0.0, 20.0])[:: 1 - 2 * n]
        for n, p in enumerate(scheme.parameters(H, d))
    }
    truth = oracle.attention(scheme, params, q, k, v, cotangent=cotangent)
    passes(compare(truth.output, twin.attention(scheme, params, q, k, v)))
    got = twin.gradients(scheme, params, q, k, v, cotangent=cotangent)
    for name in params:
        passes(compare(truth.gradients[name], got[name]))
        assert (got[name] != 0).all()


def test_the_power_of_1_is_alibi(twin: Any) -> None:
    q, k, v = (draw(n, 1, H, L, d) for n in range(3))
    raw = draw(3, H)
    slopes = np.log1p(np.exp(raw))
    truth = oracle.attention(ALiBi(learned=True), {"slopes": slopes}, q, k, v).output
    params = {"penalty": raw, "exponent": np.zeros(H)}
    passes(compare(truth, twin.attention(Kerple("power"), params, q, k, v)))
