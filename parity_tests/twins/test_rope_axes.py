"""Positions with several axes: which pair follows which axis, and what order is then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parity_tests.twins.twin import draw, fails, passes
from relpos import Axial, LongRoPE, RoPE, Sections, ShapeError, Shaw, oracle
from relpos.parity import compare

B, H, Lq, Lk, d = 2, 3, 5, 7, 12
CONTIGUOUS = RoPE("half", base=100.0, axes=Sections((2, 2, 2)))
IN_TURN = RoPE("half", base=100.0, axes=Sections((2, 2, 2), order="interleaved"))
AXIAL = RoPE("interleaved", base=100.0, axes=Axial((3, 2, 1)))


def tokens() -> list[Any]:
    return [draw(n, B, H, L, d) for n, L in enumerate((Lq, Lk, Lk))]


def grid(seed: int, *shape: int) -> Any:
    """Whole positions below 20."""
    return np.random.default_rng(seed).integers(0, 20, shape)


def test_sections_in_turn_are_another_encoding_than_one_after_another(twin: Any) -> None:
    assert Sections((2, 2, 2)).axis_of_pair() == (0, 0, 1, 1, 2, 2)
    assert Sections((2, 2, 2), order="interleaved").axis_of_pair() == (0, 1, 2, 0, 1, 2)
    at = {"query_positions": grid(1, 1, Lq, 3), "key_positions": grid(2, 1, Lk, 3)}
    q, k, v = tokens()
    expected = oracle.attention(CONTIGUOUS, {}, q, k, v, **at).output
    passes(compare(expected, twin.attention(CONTIGUOUS, {}, q, k, v, **at)))
    fails(compare(expected, twin.attention(IN_TURN, {}, q, k, v, **at)))


@pytest.mark.parametrize("scheme", [CONTIGUOUS, AXIAL], ids=["sections", "axial"])
def test_rows_have_positions_of_their_own_and_one_axis_means_all(twin: Any, scheme: RoPE) -> None:
    q, k, v = tokens()
    at = {"query_positions": grid(1, B, Lq, 3), "key_positions": grid(2, Lk)}
    equal = {**at, "key_positions": np.broadcast_to(at["key_positions"][:, None], (1, Lk, 3))}
    expected = oracle.attention(scheme, {}, q, k, v, **at).output
    assert (oracle.attention(scheme, {}, q, k, v, **equal).output.value == expected.value).all()
    for positions in (at, equal):
        passes(compare(expected, twin.attention(scheme, {}, q, k, v, **positions)))


def test_text_in_sections_is_turned_as_ever(twin: Any) -> None:
    q, k, v = tokens()
    expected = oracle.attention(RoPE("half", base=100.0), {}, q, k, v, causal=True).output
    passes(compare(expected, twin.attention(IN_TURN, {}, q, k, v, causal=True)))


def test_causality_goes_by_the_order_of_the_tokens(twin: Any) -> None:
    # The axes run backwards: by any of them, every key would be later than its query.
    at = {
        "query_positions": np.repeat(np.arange(Lq)[::-1, None], 3, 1)[None],
        "key_positions": np.repeat(np.arange(Lk)[::-1, None], 3, 1)[None],
    }
    q, k, v = tokens()
    order = np.arange(Lk) <= np.arange(Lq)[:, None] + Lk - Lq
    expected = oracle.attention(CONTIGUOUS, {}, q, k, v, mask=order[None, None], **at).output
    passes(compare(expected, twin.attention(CONTIGUOUS, {}, q, k, v, causal=True, **at)))


def test_the_farthest_axis_is_the_length_of_a_call(twin: Any) -> None:
    scaling = LongRoPE((1.0,) * 6, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0), 30, attention_factor=1.1)
    scheme = RoPE("half", base=100.0, scaling=scaling, axes=Sections((2, 2, 2)))
    at = {"query_positions": grid(1, B, Lq, 3), "key_positions": grid(2, B, Lk, 3)}
    at["key_positions"][1, 3, 2] = 30
    q, k, v = tokens()
    expected = oracle.attention(scheme, {}, q, k, v, **at).output
    passes(compare(expected, twin.attention(scheme, {}, q, k, v, **at)))


@pytest.mark.parametrize(
    ("scheme", "axes"), [(Shaw(2, 2, values=False, keys=True), 3), (CONTIGUOUS, 2)]
)
def test_positions_with_axes_that_a_scheme_has_not_are_refused(
    twin: Any, scheme: Any, axes: int
) -> None:
    q, k, v = tokens()
    params = {p.name: draw(5, *p.shape) for p in scheme.parameters(H, d)}
    with pytest.raises(ShapeError, match="query_positions have one entry per token"):
        twin.attention(scheme, params, q, k, v, query_positions=grid(1, 1, Lq, axes))
