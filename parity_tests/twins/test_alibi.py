"""ALiBi: the slopes of any number of heads, the two forms, and where the bias is added."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import relpos_jax
import relpos_torch
from parity_tests.twins.twin import draw, draw_params, fails, passes
from relpos import ALiBi, Kerple, NoPosition, Sandwich, SettingError, oracle
from relpos.oracle import Estimate, Precision
from relpos.oracle.schemes.alibi import fixed_slope
from relpos.parity import compare

H, L, d = 3, 7, 16


def scores(scheme: ALiBi, slope: float, positions: Any, **options: Any) -> list[Any]:
    """What the last of these tokens adds for each, in both twins, with one head's slope."""
    at = np.asarray(positions, np.int32)
    x = np.zeros((len(at), d))
    slopes, last = np.array(slope), at[-1:]
    by_torch = relpos_torch.relative_scores(
        *map(torch.tensor, (x[-1:], x)),
        scheme,
        {"slopes": torch.tensor(slopes)},
        query_positions=torch.tensor(last),
        key_positions=torch.tensor(at),
        **options,
    )
    by_jax = relpos_jax.relative_scores(
        *map(jnp.asarray, (x[-1:], x)),
        scheme,
        {"slopes": jnp.asarray(slopes)},
        query_positions=jnp.asarray(last),
        key_positions=jnp.asarray(at),
        **options,
    )
    return [by_torch[0].numpy(), np.asarray(by_jax)[0]]


@pytest.mark.parametrize(
    ("heads", "exponents"),
    [
        (1, [8]),
        (6, [2, 4, 6, 8, 1, 3]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
        (40, [*np.arange(1, 33) / 4, *np.arange(1, 16, 2) / 8]),
    ],
)
def test_slopes_of_any_number_of_heads_stand_in_the_order_of_the_reference(
    heads: int, exponents: list[float]
) -> None:
    np.testing.assert_array_equal(ALiBi().slopes(heads), 2.0 ** -np.array(exponents))


def test_the_oracle_finds_the_same_slopes_by_a_rule_of_its_own() -> None:
    for scheme in (ALiBi(), ALiBi(unbiased_heads=1, max_bias=3.0)):
        for heads in range(1, 129):
            exact = np.array([fixed_slope(scheme, h, heads) for h in range(heads)])
            # An exponent of at most 8 log 2, rounded, and its power rounded.
            passes(compare(Estimate(exact, 2.0**-49 * exact), np.array(scheme.slopes(heads))))


def test_the_two_forms_are_one_in_causal_attention_alone(twin: Any) -> None:
    q, k, v = (draw(n, 2, H, L, d) for n in range(3))
    exact = oracle.attention(ALiBi(), {}, q, k, v, causal=True).output
    passes(compare(exact, twin.attention(ALiBi(symmetric=False), {}, q, k, v, causal=True)))
    exact = oracle.attention(ALiBi(), {}, q, k, v).output
    fails(compare(exact, twin.attention(ALiBi(symmetric=False), {}, q, k, v)))


def test_the_second_form_is_the_slope_times_the_place_of_the_key(twin: Any) -> None:
    # A channel that is 1 in every query and the key's position in every key.
    scheme = ALiBi(symmetric=False)
    q, k, v = (draw(n, 2, 1, L, d) for n in range(3))
    (slope,) = scheme.slopes(1)
    q[..., 0], k[..., 0] = 1.0, slope * np.arange(L) * np.sqrt(d)
    plain = oracle.attention(NoPosition(), {}, q, k, v).output
    k[..., 0] = 0.0
    passes(compare(plain, twin.attention(scheme, {}, q, k, v)))


def test_the_bias_is_0_at_the_query_and_neighbours_stay_apart_far_away() -> None:
    # In half precision 512 and 513 steps would be one number.
    exact = np.array([-258.0, -257.5, -257.0, -256.5, -256.0, 0.0])
    for got in scores(ALiBi(learned=True), 0.5, [0, 1, 2, 3, 4, 516]):
        np.testing.assert_array_equal(got, exact)


@pytest.mark.parametrize(
    ("scheme", "raw"),
    [
        (ALiBi(learned=True), {"slopes": 0.5}),
        (Kerple("power"), {"penalty": np.log(np.expm1(0.5)), "exponent": 0.0}),
    ],
    ids=["ALiBi", "Kerple"],
)
def test_neighbours_far_away_stay_apart_in_half_precision_too(
    twin: Any, scheme: Any, raw: dict[str, float]
) -> None:
    # Half a step of 0.5 * 513 does not exist in bfloat16: three neighbours would weigh the same.
    single = {name: np.array([number], np.float32) for name, number in raw.items()}
    half = {name: array.astype("bfloat16") for name, array in single.items()}
    exact = {name: array.astype(np.float64) for name, array in half.items()}
    q, v = np.zeros((1, 1, 1, 5), "bfloat16"), np.eye(5, dtype="bfloat16")[None, None]
    at = {"query_positions": np.array([516]), "key_positions": np.arange(5)}
    truth = oracle.attention(
        scheme,
        exact,
        q.astype(np.float64),
        0.0 * v.astype(np.float64),
        v.astype(np.float64),
        **at,
        precision=Precision.of("bfloat16"),
    ).output
    got = twin.attention(scheme, half, q, 0 * v, v, **at)
    passes(compare(truth, got, dtype="bfloat16"))
    merged = np.exp([256.0 - n for n in (258, 258, 256, 256, 256)])
    merged = (merged / merged.sum()).astype("bfloat16").reshape(got.shape)
    fails(compare(truth, merged, dtype="bfloat16"))


@pytest.mark.parametrize(
    "scheme", [ALiBi(), ALiBi(learned=True), Kerple(), Kerple("power"), Sandwich()], ids=str
)
def test_a_penalty_of_distance_is_exactly_0_where_the_query_stands(twin: Any, scheme: Any) -> None:
    # A distance that is one too large adds the same to a whole row, which no softmax shows.
    params = {name: table[0] for name, table in draw_params(scheme, 1, d).items()}
    x = np.zeros((L, d))
    found = twin.scores(scheme, params, x, x)
    assert (np.diagonal(found) == 0.0).all()
    assert (found[~np.eye(L, dtype=bool)] != 0.0).all()


def test_the_scale_multiplies_the_bias_where_it_is_added_before() -> None:
    # Falcon's scores of <q, k> = 4, 8 and d = 16 are .875 and 2, Bloom's .5 and 2.
    for scheme, expected in (
        (ALiBi(learned=True, scaled=True), [0.875, 2.0]),
        (ALiBi(learned=True), [0.5, 2.0]),
    ):
        for got in scores(scheme, 0.5, [0, 1]):
            np.testing.assert_array_equal(got + np.array([4.0, 8.0]) / 4.0, expected)


@pytest.mark.parametrize("scaled", [False, True])
def test_no_factor_of_the_layer_touches_the_bias_unless_it_is_scaled(scaled: bool) -> None:
    scheme = ALiBi(learned=True, scaled=scaled)
    for at_one, at_half in zip(
        scores(scheme, 0.5, range(L), scale=1.0),
        scores(scheme, 0.5, range(L), scale=0.5),
        strict=True,
    ):
        np.testing.assert_array_equal(at_half, at_one * (0.5 if scaled else 1.0))


def test_learned_slopes_begin_at_the_fixed_ones_and_get_gradients() -> None:
    layer = relpos_torch.RelativeAttention(24, 6, ALiBi(learned=True), causal=True)
    np.testing.assert_array_equal(layer.slopes.detach().numpy(), ALiBi().slopes(6))
    layer(torch.tensor(draw(1, 2, L, 24, dtype=np.float32))).square().sum().backward()
    assert layer.slopes.grad is not None
    assert (layer.slopes.grad != 0).all()


def test_more_heads_without_a_bias_than_heads_are_refused_in_a_call(twin: Any) -> None:
    q = draw(1, 1, H, L, d)
    with pytest.raises(SettingError, match="some of the heads"):
        twin.attention(ALiBi(unbiased_heads=4), {}, q, q, q)
