"""Which row of a table a pair reads, and the literal values of reported faults."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import relpos_jax
import relpos_torch
from parity_tests.twins.twin import draw, draw_params, fails, passes
from relpos import (
    T5,
    ALiBi,
    ContinuousBias,
    DistanceError,
    Kerple,
    MusicTransformer,
    NoPosition,
    RoPE,
    Sandwich,
    ShapeError,
    Shaw,
    Windowed,
    oracle,
)
from relpos.distance import t5_bucket, t5_row_map
from relpos.oracle import Estimate
from relpos.oracle.schemes.t5 import bucket
from relpos.parity import compare, compare_exact
from relpos_jax.kernels import by_distance as jax_by_distance
from relpos_torch.kernels import by_distance as torch_by_distance

OFFSETS = [-(10**6), -1000, -128, -127, -91, -90, -64, -32, -20, -16, -9, -8, -7, -1, 0]
BIDIRECTIONAL = [15, 15, 15, 15, 15, 14, 14, 12, 10, 10, 8, 8, 7, 1, 0]
CAUSAL = [31, 31, 31, 31, 29, 29, 26, 21, 17, 16, 9, 8, 7, 1, 0]
SCHEMES = [Shaw(2, 3), Windowed(1, 2), T5(8, 20), T5(8, 20, False), RoPE("half")]


def one_hot_rows(twin: Any, scheme: Any, Lq: int, Lk: int, **options: Any) -> Any:
    """The row that each pair reads: values are one-hot by row, and batch row j sees key j alone."""
    N = scheme.left + scheme.right + 1
    zeros = np.zeros((Lk, 1, Lq, N)), np.zeros((Lk, 1, Lk, N)), np.zeros((Lk, 1, Lk, N))
    only = np.eye(Lk, dtype=bool)[:, None, None]
    params = {"value_table": np.eye(N)[None]}
    out = twin.attention(scheme, params, *zeros, mask=only, **options)[:, 0]
    assert (out.sum(-1) == 1.0).all()
    return out.argmax(-1).T


def test_t5_buckets_equal_the_reference_values() -> None:
    mirrored = [-offset for offset in OFFSETS[:-1]]
    for bidirectional, expected in ((True, BIDIRECTIONAL), (False, CAUSAL)):
        after = [b + 16 if bidirectional else 0 for b in expected[:-1]]
        offsets, rows = np.array(OFFSETS + mirrored), np.array(expected + after, np.int32)
        options = {"num_buckets": 32, "max_distance": 128, "bidirectional": bidirectional}
        got = t5_bucket(offsets, **options)
        passes(compare_exact(rows, got, what="buckets"))
        passes(compare_exact(rows, t5_row_map(32, 128, bidirectional)(offsets), what="map"))


@pytest.mark.parametrize("settings", [(32, 128), (320, 800), (10, 13), (4, 3), (64, 10_000)])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_t5_buckets_equal_the_oracle_at_every_distance(
    settings: tuple[int, int], bidirectional: bool
) -> None:
    num_buckets, max_distance = settings
    scheme = T5(num_buckets, max_distance, bidirectional)
    near = range(-min(max_distance + 3, 900), min(max_distance + 3, 900) + 1)
    distances = np.array([-(10**6), *near, 10**6])
    expected = np.array([bucket(scheme, int(distance)) for distance in distances])
    got = t5_row_map(num_buckets, max_distance, bidirectional)(distances)
    passes(compare_exact(expected, got, what="buckets"))


def test_clipped_rows_are_those_of_every_distance(twin: Any) -> None:
    rows = one_hot_rows(twin, Shaw(2, 2, keys=False), 6, 6)
    assert rows[0].tolist() == [2, 3, 4, 4, 4, 4]
    assert rows[5].tolist() == [0, 0, 0, 0, 1, 2]


def test_positions_need_not_be_one_range(twin: Any) -> None:
    rows = one_hot_rows(
        twin,
        Shaw(3, 3, keys=False),
        3,
        5,
        query_positions=np.array([5, 6, 2]),
        key_positions=np.array([0, 1, 5, 6, 2]),
    )
    assert rows.tolist() == [[0, 0, 3, 4, 0], [0, 0, 2, 3, 0], [1, 2, 6, 6, 3]]


def test_queries_stand_at_the_end_of_the_keys_like_the_last_rows_of_a_square(twin: Any) -> None:
    square = one_hot_rows(twin, Shaw(9, 9, keys=False), 5, 5)
    np.testing.assert_array_equal(one_hot_rows(twin, Shaw(9, 9, keys=False), 3, 5), square[2:])


@pytest.mark.parametrize(
    "scheme", [T5(8, 20), ALiBi(), Kerple(), Sandwich(), ContinuousBias(5)], ids=lambda s: s.name
)
def test_a_bias_behind_a_memory_is_the_last_rows_of_the_square(twin: Any, scheme: Any) -> None:
    drawn = draw_params(scheme, 1, 4)
    params = {name: np.asarray(table[0]) for name, table in drawn.items()}
    x = np.zeros((5, 4))
    square = oracle.relative_scores(scheme, params, x, x).output
    got = twin.scores(scheme, params, x[2:], x, scale=1.0)
    passes(compare(Estimate(square.value[2:], square.budget[2:]), got))
    fails(compare(Estimate(square.value[:3], square.budget[:3]), got))


def test_one_row_per_distance_whatever_the_length(twin: Any) -> None:
    # The centre of the table does not move with the input: a shorter input reads the same rows.
    scheme = Shaw(15, 15, keys=False)
    long, short = one_hot_rows(twin, scheme, 16, 16), one_hot_rows(twin, scheme, 10, 10)
    np.testing.assert_array_equal(short, long[:10, :10])
    assert (np.diag(short) == 15).all()


def test_lq_plus_lk_minus_one_distances_are_read() -> None:
    q, k = draw(1, 1, 1, 3, 4), draw(2, 1, 1, 5, 4)
    result = oracle.attention(Shaw(9, 9), draw_params(Shaw(9, 9), 1, 4), q, k, k)
    assert sorted(result.distances) == list(range(-4, 3))


def test_the_shift_leaks_no_row_into_another(twin: Any) -> None:
    # The causal shift trick, used both ways, answers pairs after the query with the next query's
    # scores: cell (0, 2) was q_1 . E_0.
    q, k = draw(1, 1, 2, 3, 4), draw(2, 1, 2, 3, 4)
    scheme = Shaw(2, 2)
    params = draw_params(scheme, 2, 4)
    before = twin.attention(scheme, params, q, k, k)
    other = q.copy()
    other[:, :, 1] += 1.0
    after = twin.attention(scheme, params, other, k, k)
    np.testing.assert_array_equal(after[:, :, [0, 2]], before[:, :, [0, 2]])
    assert (after[:, :, 1] != before[:, :, 1]).any()


def lcg(shape: tuple[int, ...], n: int) -> Any:
    """Numbers in -1 .. 1 from a linear congruential generator, in row-major order."""
    state, numbers = (n * 2654435761 + 12345) % 2**32, []
    for _ in range(math.prod(shape)):
        state = (1664525 * state + 1013904223) % 2**32
        numbers.append(state / 2**31 - 1.0)
    return np.reshape(numbers, shape)


def test_the_literal_shift_agrees_with_the_table_only_up_to_the_diagonal(twin: Any) -> None:
    q, E = lcg((3, 2), 21), lcg((3, 2), 22)
    reference = [
        [-0.408474034888],
        [-0.170227087314, -0.161747056178],
        [-0.468971558463, -0.227050577479, -0.239517294920],
    ]
    leaked = -0.329361562785  # q_1 . E_0, which the literal shift puts at (0, 2)
    scores = twin.scores(Shaw(2, 0, values=False), {"key_table": E}, q, q, scale=1.0)
    # The reference is given to twelve places.
    for i, row in enumerate(reference):
        given = Estimate(np.array(row), np.full(i + 1, 5e-13))
        passes(compare(given, scores[i, : i + 1]))
    fails(compare(Estimate(np.array(leaked), np.array(5e-13)), scores[0, 2]))
    # Without a vector for later keys there is nothing at all above the diagonal.
    scores = twin.scores(MusicTransformer(2), {"key_table": E}, q, 0.0 * q, scale=1.0)
    gathered = [[*row, *(0.0,) * (3 - len(row))] for row in reference]
    passes(compare(Estimate(np.array(gathered), np.full((3, 3), 5e-13)), scores))
    passes(compare(Estimate(np.array(leaked), np.array(5e-13)), q[1] @ E[0]))


def test_the_shift_reads_a_new_column_in_every_row(twin: Any) -> None:
    # After a column that is never read, column p is distance p - 2.
    x = np.array([[-1.0] + [10.0 * i + p for p in range(5)] for i in range(3)])
    kernels = {"torch": torch_by_distance, "jax": jax_by_distance}[twin.name]
    shifted = twin.numpy(kernels.skew(twin.array(x)))
    assert shifted.tolist() == [[2, 3, 4], [11, 12, 13], [20, 21, 22]]
    back = twin.numpy(kernels.unskew(twin.array(shifted)))
    np.testing.assert_array_equal(back, np.where(np.isin(x, shifted), x, 0.0))


def test_explicit_default_positions_change_nothing(twin: Any) -> None:
    H, Lq, Lk, d = 3, 5, 7, 8
    q, k = draw(1, 2, H, Lq, d), draw(2, 2, H, Lk, d)
    for scheme in (Shaw(2, 3), RoPE("half")):
        params = draw_params(scheme, H, d)
        expected = oracle.attention(scheme, params, q, k, k).output
        for at in (np.arange(Lk - Lq, Lk), np.tile(np.arange(Lk - Lq, Lk), (2, 1))):
            got = twin.attention(scheme, params, q, k, k, query_positions=at)
            passes(compare(expected, got))
        moved = twin.attention(scheme, params, q, k, k, query_positions=np.arange(Lq))
        fails(compare(expected, moved))


def test_any_length_runs_with_a_table_that_clips(twin: Any) -> None:
    scheme = Shaw(1, 2)
    params = draw_params(scheme, 1, 4)
    for L in (1, 2, 5, 17, 64):
        x = draw(L, 1, 1, L, 4)
        expected = oracle.attention(scheme, params, x, x, x).output
        passes(compare(expected, twin.attention(scheme, params, x, x, x)))


@pytest.mark.parametrize("causal", [False, True])
def test_a_distance_beyond_a_table_that_may_not_clip_is_named(twin: Any, causal: bool) -> None:
    scheme = Shaw(4, 0 if causal else 4, clip=False)
    params = draw_params(scheme, 1, 4)
    fits, longer = draw(1, 1, 1, 5, 4), draw(2, 1, 1, 6, 4)
    expected = oracle.attention(scheme, params, fits, fits, fits, causal=True).output
    got = twin.attention(scheme, params, fits, fits, fits, causal=True)
    passes(compare(expected, got))
    with pytest.raises(DistanceError, match=r"from -4 to .* only\. Got distance -5"):
        twin.attention(scheme, params, longer, longer, longer, causal=causal)


def test_a_table_of_another_width_or_head_count_is_refused(twin: Any) -> None:
    # 24 / 8 heads gives a table 3 wide; one with the number of heads as its width is an error.
    x = draw(1, 1, 8, 5, 3)
    good = {"key_table": np.zeros((1, 5, 3))}
    scheme = Shaw(2, 2, values=False)
    twin.attention(scheme, good, x, x, x)
    for shape in ((1, 5, 8), (8, 5, 3), (5, 3), (1, 4, 3)):
        with pytest.raises(ShapeError, match="params hold exactly the scheme's parameters"):
            twin.attention(scheme, {"key_table": np.zeros(shape)}, x, x, x)
    with pytest.raises(ShapeError, match="params hold exactly"):
        twin.attention(NoPosition(), good, x, x, x)


def test_as_many_heads_as_channels_hide_no_swapped_axes(twin: Any) -> None:
    # 64 / 8: an axis of heads is as long as one of channels.
    scheme = Shaw(2, 1, per_head=True)
    q, k, v = (draw(n, 2, 8, 5, 8) for n in range(3))
    params = draw_params(scheme, 8, 8)
    truth = oracle.attention(scheme, params, q, k, v).output
    passes(compare(truth, twin.attention(scheme, params, q, k, v)))
    swapped = {name: table.swapaxes(0, 2) for name, table in params.items()}
    fails(compare(truth, twin.attention(scheme, swapped, q, k, v)))


@pytest.mark.parametrize("scheme", SCHEMES[:-1], ids=str)
def test_every_entry_of_every_table_matters(twin: Any, scheme: Any) -> None:
    H, L, d = 2, 24, 4
    q, k, v = (draw(n, 1, H, L, d) for n in range(3))
    params = draw_params(scheme, H, d)
    before = twin.attention(scheme, params, q, k, v)
    for name, table in params.items():
        rows = range(table.shape[1])
        if isinstance(scheme, T5) and scheme.bidirectional:
            # Distance 0 has the first bucket of the left side; that of the right is never read.
            rows = [row for row in rows if row != scheme.num_buckets // 2]
        for row in rows:
            changed = table.copy()
            changed[:, row] += 1.0
            after = twin.attention(scheme, {**params, name: changed}, q, k, v)
            assert (after != before).any(), (name, row)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_positions_in_narrow_integers_do_not_wrap(twin: Any, scheme: Any) -> None:
    q = draw(1, 1, 2, 3, 8)
    params = draw_params(scheme, 2, 8)
    wide = {"query_positions": np.array([-128, 0, 127]), "key_positions": np.array([127, 1, -128])}
    expected = oracle.attention(scheme, params, q, q, q, **wide).output
    narrow = {name: at.astype(np.int8) for name, at in wide.items()}
    passes(compare(expected, twin.attention(scheme, params, q, q, q, **narrow)))


def test_positions_out_of_reach_are_an_error_or_not_a_number() -> None:
    far = np.array([0, 2**33])
    q = draw(1, 1, 1, 2, 8)
    with pytest.raises(ShapeError, match=r"strictly between -2\*\*30 and 2\*\*30"):
        relpos_jax.attention(
            *(jnp.asarray(q.swapaxes(1, 2)),) * 3, RoPE("half"), key_positions=jnp.asarray(far)
        )
    qt = torch.tensor(q)
    out = relpos_torch.attention(qt, qt, qt, RoPE("half"), key_positions=torch.tensor(far))
    assert out.isnan().all()
