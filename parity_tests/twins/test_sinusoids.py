"""TransformerXL and Zipformer where positions are far apart, hidden, or not clamped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import relpos_jax
import relpos_torch
from parity_tests.twins.twin import draw, draw_params, fails, passes, unchecked
from relpos import TransformerXL, Zipformer, oracle
from relpos.errors import SettingError
from relpos.parity import compare

H, L, d = 3, 13, 7
WIDE, NARROW = TransformerXL("concat", width=64), TransformerXL("interleaved", width=6)


def scores(twin: Any, scheme: Any, params: Any, q: Any, k: Any, **options: Any) -> Any:
    """`relative_scores` of a twin, with scale 1."""
    of = {"torch": relpos_torch, "jax": relpos_jax}[twin.name]
    tables = {name: twin.array(table) for name, table in params.items()}
    given = {name: twin.array(option) for name, option in options.items()}
    return twin.numpy(
        of.relative_scores(twin.array(q), twin.array(k), scheme, tables, scale=1.0, **given)
    )


@pytest.mark.parametrize("scheme", [WIDE, NARROW], ids=["distances", "queries"])
def test_the_scores_of_equal_tokens_depend_on_the_distance_alone(twin: Any, scheme: Any) -> None:
    # Also of keys after the query: those of an absolute encoding, or of a shift that is too short,
    # do not. Either way to compute them is tried.
    assert (scheme.projected((1 - L, L - 1), L, L, d) is None) == (scheme is NARROW)
    token = np.tile(draw(1, 1, d), (L, 1))
    params = {name: table[0] for name, table in draw_params(scheme, 1, d).items()}
    truth = oracle.relative_scores(scheme, params, token, token, scale=1.0).output
    got = scores(twin, scheme, params, token, token)
    passes(compare(truth, got))
    for distance in range(1 - L, L):
        diagonal = np.diagonal(got, distance)
        budget = np.diagonal(truth.budget, distance).max()
        assert np.ptp(diagonal) <= 2 * budget
    assert np.ptp(got[0]) > 0.1
    fails(compare(truth, got.T))


@pytest.mark.parametrize("scheme", [WIDE, NARROW], ids=["distances", "queries"])
def test_no_cell_reads_the_next_query(twin: Any, scheme: Any) -> None:
    q, k = draw(1, L, d), draw(2, L, d)
    params = {name: table[0] for name, table in draw_params(scheme, 1, d).items()}
    before = scores(twin, scheme, params, q, k)
    q[1] = 77.0
    after = scores(twin, scheme, params, q, k)
    np.testing.assert_array_equal(np.delete(after, 1, 0), np.delete(before, 1, 0))
    assert (after[1] != before[1]).all()


def test_keys_far_away_need_no_list_of_distances(twin: Any) -> None:
    q, k, v = draw(1, 2, H, 5, d), draw(2, 2, H, 3, d), draw(3, 2, H, 3, d)
    params = draw_params(WIDE, H, d)
    far = {"query_positions": np.array([0, 5, 10**9, 7, 2**29]), "key_positions": np.arange(3)}
    expected = oracle.attention(WIDE, params, q, k, v, **far).output
    passes(compare(expected, twin.attention(WIDE, params, q, k, v, **far)))


def test_zipformer_needs_no_clamp_where_positions_are_seen(twin: Any) -> None:
    scheme = Zipformer(width=12, query_width=2)
    q, k, small = draw(1, L, d), draw(2, L, d), draw(3, L, 2)
    params = {name: table[0] for name, table in draw_params(scheme, 1, d).items()}
    for at in ({}, {"query_positions": np.arange(L) + 300, "key_positions": np.arange(L)}):
        truth = oracle.relative_scores(
            scheme, params, q, k, query_features=small, scale=1.0, **at
        ).output
        passes(compare(truth, scores(twin, scheme, params, q, k, query_features=small, **at)))
        assert np.ptp(truth.value[0]) > 10 * truth.budget.max()
    with pytest.raises(SettingError, match=r"Zipformer lists the distances.*clamp=N"):
        scheme.listed(None)


def test_symmetric_sinusoids_of_hidden_positions_are_refused(twin: Any) -> None:
    scheme = TransformerXL("interleaved", 6, symmetric=True)
    q, k = draw(1, L, d), draw(2, L, d)
    params = {name: table[0] for name, table in draw_params(scheme, 1, d).items()}
    at = {"query_positions": np.arange(L), "key_positions": np.arange(L)}
    truth = oracle.relative_scores(scheme, params, q, k, scale=1.0).output
    passes(compare(truth, scores(twin, scheme, params, q, k)))
    passes(compare(truth, scores(twin, scheme, params, q, k, **at)))
    params = draw_params(scheme, H, d)
    qkv = [draw(n, 1, H, L, d) for n in range(3)]
    hidden = twin.attention if twin.name == "jax" else _compiled
    with unchecked(), pytest.raises(SettingError, match=r"which must be seen.*clamp=N"):
        hidden(scheme, params, *qkv, **at)


def _compiled(scheme: Any, params: Any, *qkv: Any, query_positions: Any, key_positions: Any) -> Any:
    tables = {name: torch.tensor(table) for name, table in params.items()}
    q, k, v = (torch.tensor(array) for array in qkv)

    def call(query: Any, key: Any) -> Any:
        return relpos_torch.attention(
            q, k, v, scheme, tables, query_positions=query, key_positions=key
        )

    at = torch.tensor(query_positions)[None], torch.tensor(key_positions)[None]
    return torch.func.vmap(call)(*at)
