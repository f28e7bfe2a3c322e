"""Who may attend to whom: broadcasting, causality, rows that may attend to nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity_tests.twins.twin import draw, draw_params, passes, unchecked
from relpos import NoPosition, ShapeError, Shaw, oracle
from relpos.oracle import Precision
from relpos.parity import compare, compare_exact

B, H, Lq, Lk, d = 2, 3, 5, 7, 8


# Every shape there is meets every row in `parity_tests/rows`, in PyTorch.
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (B, 1, 1, Lk), (1, H, Lq, 1), (1, 1, Lq, Lk), (B, H, 1, Lk)]
)
def test_a_mask_of_every_broadcastable_shape_equals_the_full_one(
    twin: Any, shape: tuple[int, ...]
) -> None:
    scheme = Shaw(2, 1)
    q, k, v = draw(1, B, H, Lq, d), draw(2, B, H, Lk, d), draw(3, B, H, Lk, d)
    params = draw_params(scheme, H, d)
    mask = np.random.default_rng(7).random(shape) > 0.4
    got = twin.attention(scheme, params, q, k, v, mask=mask)
    full = np.broadcast_to(mask, (B, H, Lq, Lk))
    expected = oracle.attention(scheme, params, q, k, v, mask=full).output
    passes(compare(expected, got))


@pytest.mark.parametrize("shape", [(Lk,), (Lq, Lk), (B, Lk), (H, Lq, Lk), (1, 1, 1, Lq, Lk)])
def test_a_mask_with_other_than_four_axes_is_refused_even_where_it_would_fit(
    twin: Any, shape: tuple[int, ...]
) -> None:
    # [B, Lk] with B = Lq, or [B, Lq, Lk] with B = H, would mean something else without a word.
    q, k = draw(1, B, H, Lq, d), draw(2, B, H, Lk, d)
    with pytest.raises(ShapeError, match=r"a mask must have four axes.*mask\[None, None\]"):
        twin.attention(NoPosition(), {}, q, k, k, mask=np.ones(shape, bool))


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_a_mask_of_another_dtype_is_refused_by_name(twin: Any, dtype: str) -> None:
    q, k = draw(1, B, H, Lq, d), draw(2, B, H, Lk, d)
    message = rf"Got (torch\.)?{dtype}; expected bool: m != 0 of zeros"
    with unchecked(), pytest.raises(ShapeError, match=message):
        twin.attention(NoPosition(), {}, q, k, k, mask=np.ones((1, 1, Lq, Lk), dtype))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_row_that_may_attend_to_nothing_is_zero_and_its_gradients_finite(
    twin: Any, dtype: str
) -> None:
    scheme = Shaw(2, 1)
    q, k, v = (draw(n, B, H, L, d, dtype=dtype) for n, L in enumerate((Lq, Lk, Lk)))
    params = draw_params(scheme, H, d, dtype)
    mask = np.ones((B, 1, Lq, Lk), bool)
    mask[1, :, 3] = False
    out = twin.attention(scheme, params, q, k, v, mask=mask)
    assert out.dtype == dtype
    assert np.isfinite(out).all()
    assert (out[1, :, 3] == 0).all()
    assert (out[0] != 0).all()
    gradients = twin.gradients(scheme, params, q, k, v, cotangent=np.ones_like(q), mask=mask)
    for gradient in gradients.values():
        assert np.isfinite(gradient).all()
    assert (gradients["q"][1, :, 3] == 0).all()


def test_nothing_becomes_infinite_on_the_way_to_a_masked_softmax() -> None:
    from parity_tests.twins.twin import JaxTwin

    q = draw(1, B, H, Lq, d)
    mask = np.tril(np.ones((1, 1, Lq, Lq), bool), -1)
    with jax.debug_infs(True), jax.debug_nans(True):
        assert np.isfinite(JaxTwin().attention(NoPosition(), {}, q, q, q, mask=mask)).all()


def test_causal_aligns_the_queries_to_the_end_of_the_keys(twin: Any) -> None:
    # With equal scores and one-hot values the weights themselves come out.
    q, k, v = np.zeros((1, 1, 2, 5)), np.zeros((1, 1, 5, 5)), np.eye(5)[None, None]
    weights = twin.attention(NoPosition(), {}, q, k, v, causal=True)[0, 0]
    expected = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], bool)
    passes(compare_exact(expected, weights > 0, what="who sees whom"))
    # The frameworks' own flags count from the other end: one query after a past sees key 0 alone.
    top_left = np.array([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]], bool)
    if twin.name == "torch":
        tensors = (torch.tensor(a) for a in (q, k, v))
        theirs = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=True)
    else:
        arrays = (jnp.asarray(a.swapaxes(1, 2), jnp.float32) for a in (q, k, v))
        theirs = jax.nn.dot_product_attention(*arrays, is_causal=True).swapaxes(1, 2)
    passes(compare_exact(top_left, twin.numpy(theirs)[0, 0] > 0, what="who sees whom"))


def test_a_padded_key_is_never_read(twin: Any) -> None:
    scheme = Shaw(2, 1)
    q, k = draw(1, B, H, Lq, d), draw(2, B, H, Lk, d)
    params = draw_params(scheme, H, d)
    mask = np.arange(Lk) < np.array([Lk, 4])[:, None]
    wild = k.copy()
    wild[1, :, 4:] = 1e30
    calm = twin.attention(scheme, params, q, k, k, mask=mask[:, None, None, :])
    np.testing.assert_array_equal(
        twin.attention(scheme, params, q, wild, wild, mask=mask[:, None, None, :]), calm
    )


def test_half_precision_with_a_mask_stays_within_its_budget(twin: Any) -> None:
    scheme = Shaw(2, 1)
    q, k, v = (draw(n, B, H, L, d, dtype="float16") for n, L in enumerate((Lq, Lk, Lk)))
    params = draw_params(scheme, H, d, "float16")
    mask = np.random.default_rng(3).random((B, 1, Lq, Lk)) > 0.5
    got = twin.attention(scheme, params, q, k, v, mask=mask)
    exact = [a.astype(np.float64) for a in (q, k, v)]
    tables = {name: table.astype(np.float64) for name, table in params.items()}
    expected = oracle.attention(
        scheme, tables, *exact, mask=mask, precision=Precision.of("float16")
    ).output
    passes(compare(expected, got, dtype="float16"))
