"""Frequencies for longer inputs and partial rotation: what goes wrong elsewhere."""

from __future__ import annotations

import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import relpos_jax
import relpos_torch
from parity_tests.twins.twin import draw, draw_weights, fails, passes
from relpos import (
    AttentionSettings,
    DynamicNTK,
    LinearScaling,
    Llama3Scaling,
    LongRoPE,
    NTKScaling,
    RoPE,
    SettingError,
    YaRN,
    oracle,
)
from relpos.oracle import Estimate
from relpos.parity import compare
from relpos.weights.stored import make_scheme

H, d = 3, 8
NTK = RoPE("half", scaling=DynamicNTK(2.0, original_length=8))
LONG = RoPE(
    "half",
    base=100.0,
    scaling=LongRoPE((1.0, 1.1, 1.2, 1.5), (1.0, 3.0, 5.0, 7.0), original_length=8, factor=4.0),
)


def eager(twin: Any, scheme: RoPE, *qkv: Any, **positions: Any) -> Any:
    """A call whose positions can be seen."""
    if twin.name == "torch":
        return twin.attention(scheme, {}, *qkv, **positions)
    arrays = [jnp.asarray(a.swapaxes(1, 2)) for a in qkv]
    at = {name: jnp.asarray(array) for name, array in positions.items()}
    return np.asarray(relpos_jax.attention(*arrays, scheme, **at)).swapaxes(1, 2)


def test_frequencies_past_the_original_length_are_the_published_ones() -> None:
    # Values of another implementation, to twelve places.
    scheme = RoPE("half", scaling=DynamicNTK(2.0, original_length=2048))
    plain, stretched = (
        [1.0, 0.1, 0.01, 0.001],
        [1.0, 0.069336127435, 0.004807498568, 0.000333333333],
    )
    for length, values in ((100, plain), (2048, plain), (4096, stretched), (100, plain)):
        given = Estimate(np.array(values), np.full(4, 5e-13))
        passes(compare(given, np.array(scheme.frequencies(d, length))))


def test_llama3_slows_the_slow_pairs_alone() -> None:
    plain = np.array(RoPE("half", base=5e5).frequencies(64))
    scaled = np.array(RoPE("half", base=5e5, scaling=Llama3Scaling(32.0)).frequencies(64))
    assert (scaled[:15] == plain[:15]).all()
    assert ((plain / 32 < scaled) & (scaled < plain))[15:18].all()
    assert (scaled[18:] == plain[18:] / 32).all()


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ({"mscale": 0.707, "mscale_all_dim": 1.0}, (1 + 0.0707 * math.log(40)) / 1.3688879454),
        ({}, 1.3688879454),
        ({"attention_factor": 0.8}, 0.8),
    ],
)
def test_two_mscales_are_a_ratio(settings: Any, factor: float) -> None:
    assert YaRN(40.0, 4096, **settings).magnitude == pytest.approx(factor, rel=1e-10)


@pytest.mark.parametrize("scheme", [NTK, LONG], ids=["dynamic NTK", "LongRoPE"])
def test_a_short_call_after_a_long_one_is_a_short_call(twin: Any, scheme: RoPE) -> None:
    for length in (5, 19, 5):
        q, k, v = (draw(n, 1, H, L, d) for n, L in enumerate((2, length, length)))
        expected = oracle.attention(scheme, {}, q, k, v).output
        passes(compare(expected, twin.attention(scheme, {}, q, k, v)))
        plain = twin.attention(RoPE("half"), {}, q, k, v)
        (fails if length > 8 or scheme is LONG else passes)(compare(expected, plain))


@pytest.mark.parametrize("scheme", [NTK, LONG], ids=["dynamic NTK", "LongRoPE"])
@pytest.mark.parametrize("shared_keys", [True, False])
def test_each_row_of_a_batch_has_its_own_length(twin: Any, scheme: RoPE, shared_keys: bool) -> None:
    q, k, v = (draw(n, 2, H, L, d) for n, L in enumerate((2, 5, 5)))
    at, others = np.array([[3, 4], [40, 41]]), np.array([0, 1, 3, 6, 7])
    if not shared_keys:
        others = others + np.array([[0], [34]])
    got = eager(twin, scheme, q, k, v, query_positions=at, key_positions=others)
    for row in range(2):
        alone = oracle.attention(
            scheme,
            {},
            *(a[row : row + 1] for a in (q, k, v)),
            query_positions=at[row],
            key_positions=others if shared_keys else others[row],
        ).output
        passes(compare(alone, got[row : row + 1]))


@pytest.mark.parametrize("scheme", [NTK, LONG], ids=["dynamic NTK", "LongRoPE"])
def test_decoding_past_the_original_length_rotates_every_key_anew(twin: Any, scheme: RoPE) -> None:
    settings = AttentionSettings(12, H, scheme, head_dim=d, causal=True)
    weights, x = draw_weights(settings), draw(5, 1, 10, 12)
    layer = twin.layer(settings, weights, eager=True)
    _, cache = layer(x[:, :7], cache=layer.init_cache(1, 11))
    for step in range(7, 10):
        got, cache = layer(x[:, step : step + 1], cache=cache)
        expected = oracle.layer(settings, weights, x[:, : step + 1]).output
        last = Estimate(expected.value[:, -1:], expected.budget[:, -1:])
        passes(compare(last, got))


def test_a_length_that_cannot_be_seen_must_be_set() -> None:
    q, at = draw(1, 1, H, 5, d), np.arange(5) + 9

    def torch_call(scheme: RoPE) -> Any:
        def call(at: Any) -> Any:
            x = torch.tensor(q)
            return relpos_torch.attention(x, x, x, scheme, query_positions=at, key_positions=at)

        return torch.func.vmap(call)(torch.tensor(at[None]))[0].numpy()

    def jax_call(scheme: RoPE) -> Any:
        x = jnp.asarray(q.swapaxes(1, 2))

        def call(at: Any) -> Any:
            return relpos_jax.attention(x, x, x, scheme, query_positions=at, key_positions=at)

        return np.asarray(jax.jit(call)(jnp.asarray(at))).swapaxes(1, 2)

    fixed = RoPE("half", scaling=DynamicNTK(2.0, original_length=8, length=14))
    positions = {"query_positions": at, "key_positions": at}
    expected = oracle.attention(NTK, {}, q, q, q, **positions).output
    for call in (torch_call, jax_call):
        with pytest.raises(SettingError, match="from the call's largest position, which must be"):
            call(NTK)
        passes(compare(expected, call(fixed)))


def test_the_partner_of_a_channel_follows_the_kind_of_part(twin: Any) -> None:
    # Half of a head of 8 rotates: channel 0 turns with channel 2 of the part, or 4 of the whole.
    x = np.zeros((1, 1, 1, d))
    x[..., 0] = 1.0
    module = relpos_torch.schemes.rope if twin.name == "torch" else relpos_jax.schemes.rope
    dtype = torch.float64 if twin.name == "torch" else jnp.dtype("float64")
    for partial, partner in (("slice", 2), ("proportional", 4)):
        scheme = RoPE("half", rotary_dim=4, partial=partial)  # type: ignore[arg-type]
        cos, sin = module.angles(scheme, twin.array(np.array([1])), d, dtype)
        turned = twin.numpy(module.rotate(twin.array(x), cos, sin, "half"))[0, 0, 0]
        assert np.flatnonzero(turned).tolist() == [0, partner]


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [2, 4, 8])
@pytest.mark.parametrize("partial", ["slice", "proportional"])
def test_every_share_of_the_head_can_turn(
    twin: Any, layout: Any, rotary_dim: int, partial: Any
) -> None:
    scheme = RoPE(layout, rotary_dim, 100.0, partial, LinearScaling(2.0))
    q, k, v = (draw(n, 1, H, 3, d) for n in range(3))
    expected = oracle.attention(scheme, {}, q, k, v).output
    passes(compare(expected, twin.attention(scheme, {}, q, k, v)))


@pytest.mark.parametrize("scheme", [NTK, LONG, RoPE("half", scaling=YaRN(4.0, 64))], ids=str)
def test_nested_settings_survive_json(scheme: RoPE) -> None:
    stored = json.loads(json.dumps(scheme.to_dict()))
    assert RoPE.from_dict(stored) == scheme
    del stored["scheme"]
    assert make_scheme("RoPE", stored) == scheme


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"name": "Sorcery"}, "scaling must be known by name"),
        ({"factor": 4.0}, "scaling must be known by name"),
        ({"name": "NTKScaling", "alpha": 4.0}, "NTKScaling takes its own settings"),
        ({"name": "YaRN", "factor": 4.0, "original_length": 64}, "every field of nested settings"),
        ({"name": "NTKScaling", "factor": True}, "NTKScaling.factor must have its declared type"),
    ],
)
def test_nested_settings_that_do_not_fit_are_refused(scaling: Any, message: str) -> None:
    stored = {**RoPE("half", scaling=NTKScaling(4.0)).to_dict(), "scaling": scaling}
    with pytest.raises(SettingError, match=message):
        RoPE.from_dict(stored)
