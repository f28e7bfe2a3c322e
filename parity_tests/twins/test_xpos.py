"""The decay of xPos where it overflows, depends on the length, or is refused."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import relpos_jax
import relpos_torch
from parity_tests.twins.twin import JaxTwin, TorchTwin, draw, passes
from relpos import DistanceError, XPos, oracle
from relpos.oracle import Precision
from relpos.parity import compare

H, d = 2, 8
SCHEME = XPos("interleaved")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_positions_as_far_apart_as_can_be_lose_nothing(twin: Any, dtype: str) -> None:
    at = np.array([0, 1, 256, 18_130, 36_000, SCHEME.reach]) - 7_000
    q, k, v, cotangent = (draw(n, 1, H, len(at), d, dtype=dtype) for n in range(4))
    options = {"causal": True, "query_positions": at, "key_positions": at}
    truth = oracle.attention(
        SCHEME,
        {},
        *(a.astype(np.float64) for a in (q, k, v)),
        **options,
        cotangent=cotangent.astype(np.float64),
        precision=Precision.of(dtype),
    )
    passes(compare(truth.output, twin.attention(SCHEME, {}, q, k, v, **options)))
    gradients = twin.gradients(SCHEME, {}, q, k, v, cotangent=cotangent, **options)
    for name, gradient in gradients.items():
        passes(compare(truth.gradients[name], gradient))


def test_a_wider_row_is_refused_and_not_a_number_where_unseen() -> None:
    q = draw(1, 2, H, 2, d)
    at = np.array([[0, 5], [10**6, 10**6 + SCHEME.reach + 1]])
    arrays = [jnp.asarray(q.swapaxes(1, 2))] * 3
    with pytest.raises(
        DistanceError, match=r"up to 36260 apart\. Got positions 1000000 to 1036261"
    ):
        relpos_jax.attention(
            *arrays, SCHEME, query_positions=jnp.asarray(at), key_positions=jnp.asarray(at)
        )
    with pytest.raises(
        DistanceError, match=r"up to 36260 apart\. Got positions 1000000 to 1036261"
    ):
        TorchTwin().attention(SCHEME, {}, q, q, q, query_positions=at, key_positions=at)
    hidden = JaxTwin().attention(SCHEME, {}, q, q, q, query_positions=at, key_positions=at)

    def call(x: Any, at: Any) -> Any:
        x = x[None]
        return relpos_torch.attention(x, x, x, SCHEME, query_positions=at, key_positions=at)[0]

    vmapped = torch.func.vmap(call)(torch.tensor(q), torch.tensor(at)).numpy()
    for out in (hidden, vmapped):
        assert np.isfinite(out[0]).all()
        assert np.isnan(out[1]).all()


def test_the_length_of_the_call_changes_nothing(twin: Any) -> None:
    # The last query reads the last three keys alone, in a call of 3 tokens and of 300.
    q, k, v = (draw(n, 1, H, 300, d) for n in range(3))
    expected = oracle.attention(SCHEME, {}, *(a[:, :, -3:] for a in (q, k, v)), causal=True).output
    mask = np.zeros((1, 1, 300, 300), bool)
    mask[..., -3:, -3:] = True
    got = twin.attention(SCHEME, {}, q, k, v, mask=mask, causal=True)
    passes(compare(expected, got[:, :, -3:]))
