"""What both kernels that work block by block had to learn about numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import relpos_jax
from parity_tests.twins.twin import draw, passes
from relpos import T5, ALiBi, NoPosition, oracle
from relpos.oracle import Precision
from relpos.parity import compare


@pytest.mark.parametrize("offset", [2.0**14, 2.0**24])
def test_gradients_keep_their_digits_where_all_scores_are_large(twin: Any, offset: float) -> None:
    # What all scores have in common changes nothing, and without content it is all that they have.
    v, cotangent = (draw(n, 1, 2, 5, 4, dtype=np.float32) for n in range(2))
    q = np.zeros_like(v)
    got = twin.gradients(
        T5(4, 8),
        {"bias_table": np.full((2, 4), offset, np.float32)},
        q,
        q,
        v,
        cotangent=cotangent,
        implementation="blockwise",
    )
    truth = oracle.attention(
        NoPosition(),
        {},
        *(a.astype(np.float64) for a in (q, q, v)),
        cotangent=cotangent.astype(np.float64),
        precision=Precision.of("float32"),
    )
    passes(compare(truth.gradients["v"], got["v"]))


def test_second_derivatives_in_jax_are_finite_where_rows_see_nothing() -> None:
    x = jnp.asarray(draw(1, 1, 6, 2, 4))
    mask = jnp.ones((1, 1, 6, 6), bool).at[..., 2, :].set(False)

    def twice(name: str) -> Any:
        def loss(q: Any) -> Any:
            out = relpos_jax.attention(
                q, x, x, ALiBi(), mask=mask, scale=300.0, implementation=name
            )
            return (out**2).sum()

        return jax.jit(jax.grad(lambda q: (jax.grad(loss)(q) ** 2).sum()))(x)

    found = twice("blockwise")
    assert jnp.isfinite(found).all()
