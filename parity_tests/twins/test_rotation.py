"""Angles and pairs of RoPE, where floating point goes wrong elsewhere."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
import torch

from parity_tests.twins.twin import JaxTwin, TorchTwin, draw, draw_weights, fails, passes
from relpos import AttentionSettings, RoPE, SettingError, oracle
from relpos.oracle import Estimate, Precision
from relpos.parity import compare
from relpos.rotation import byte_tables, frequencies
from relpos_jax.schemes import rope as jax_rope
from relpos_torch.schemes import rope as torch_rope

ROPES = {"torch": torch_rope, "jax": jax_rope}


def angles(twin: Any, scheme: RoPE, positions: Any, d: int, dtype: str) -> Any:
    """Cosines and sines of a twin as numpy."""
    import jax.numpy as jnp

    framework = {"torch": torch, "jax": jnp}[twin.name]
    at = twin.array(np.asarray(positions, np.int64))
    dtype = getattr(framework, dtype)
    if twin.name == "jax":
        dtype = jnp.dtype(dtype)
    return [twin.numpy(a) for a in ROPES[twin.name].angles(scheme, at, d, dtype)]


def test_the_two_pair_layouts_have_their_own_values(twin: Any) -> None:
    expected = {
        "half": [-1.984110648556, 1.959900667497, 2.462377902412, 4.019799668335],
        "interleaved": [-1.142639663748, 1.922075596544, 2.959850667913, 4.029799501669],
    }
    x = twin.array(np.array([1.0, 2.0, 3.0, 4.0])[None, None, None])
    for layout, values in expected.items():
        scheme = RoPE(layout)  # type: ignore[arg-type]
        cos, sin = angles(twin, scheme, [1], 4, "float64")
        rotate = ROPES[twin.name].rotate
        got = twin.numpy(rotate(x, twin.array(cos), twin.array(sin), layout))
        # The values above are given to twelve places.
        given = Estimate(np.array(values), np.full(4, 5e-13))
        passes(compare(given, got[0, 0, 0]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_angles_are_right_at_every_position_an_int32_can_name(twin: Any, dtype: str) -> None:
    scheme, d = RoPE("half", base=10_000.0), 32
    positions = [0, 1, -1, 255, 256, 257, 1857, 2049, 65_537, 131_071, 10**6, 2**31 - 1, -(10**9)]
    mpmath.mp.dps = 50
    exact = [
        [
            [mpmath.cos(p * mpmath.mpf(float(f))), mpmath.sin(p * mpmath.mpf(float(f)))]
            for f in frequencies(10_000.0, d)
        ]
        for p in positions
    ]
    values = np.array(exact, dtype=np.float64)
    unit = Precision.of(dtype).unit
    for got, kind in zip(angles(twin, scheme, positions, d, dtype), (0, 1), strict=True):
        # Four roundings of table entries and three additions of angles, each of size one at most.
        allowed = Estimate(values[..., kind], np.full(values.shape[:2], 8 * unit))
        passes(compare(allowed, got))


def test_no_position_is_far_off_as_in_half_precision(twin: Any) -> None:
    frequency, at = frequencies(10_000.0, 32), np.arange(2048)
    assert 1857 * frequency[1] == 1044.2678408784782
    halves = at.astype(np.float16)[:, None] * frequency.astype(np.float16)
    assert halves[1857, 1] == 1045.0
    exact = np.cos(at[:, None] * frequency)
    assert round(np.abs(np.cos(halves.astype(np.float64)) - exact).max(), 5) == 0.78191
    cos, _ = angles(twin, RoPE("half"), at, 32, "float32")
    passes(compare(Estimate(exact, np.full(exact.shape, 2.0**-23)), cos))


def test_one_layout_is_the_other_with_the_channels_of_q_and_k_reordered(twin: Any) -> None:
    # As conversions between them do: per head, of which keys have 2 and queries 8. Values stay.
    rotated, D = 6, 12
    settings, other = (
        AttentionSettings(D, 8, RoPE(layout), num_kv_heads=2, head_dim=rotated)
        for layout in ("interleaved", "half")
    )
    weights, x = draw_weights(settings), draw(5, 2, 5, D)
    expected = oracle.layer(settings, weights, x).output
    order = [0, 2, 4, 1, 3, 5]
    moved = {
        name: array[..., order] if name.split(".")[0] in ("query", "key") else array
        for name, array in weights.items()
    }
    assert (moved["key.kernel"].shape, moved["query.bias"].shape) == ((D, 2, 6), (8, 6))
    passes(compare(expected, twin.layer(other, moved)(x)))
    if twin.name == "torch":
        for name in ("value.kernel", "value.bias"):
            moved[name] = moved[name][..., order]
        fails(compare(expected, twin.layer(other, moved)(x)))


def test_half_precision_never_touches_an_angle(twin: Any) -> None:
    # In float16 the angle of position 1857, channel 1 of 32 would be 1045 instead of 1044.27.
    H, d = 2, 32
    scheme = RoPE("half")
    at = np.array([0, 1857, 2047, 2049, 4095])
    q, k, v = (draw(n, 1, H, 5, d, dtype="float16") for n in range(3))
    got = twin.attention(scheme, {}, q, k, v, query_positions=at, key_positions=at)
    expected = oracle.attention(
        scheme,
        {},
        *(a.astype(np.float64) for a in (q, k, v)),
        query_positions=at,
        key_positions=at,
        precision=Precision.of("float16"),
    ).output
    passes(compare(expected, got, dtype="float16"))


def test_only_the_first_channels_turn(twin: Any) -> None:
    d = 8
    x = draw(1, 1, 1, 3, d)
    for layout in ("half", "interleaved"):
        for rotary_dim in (2, 4, 8):
            scheme = RoPE(layout, rotary_dim=rotary_dim)  # type: ignore[arg-type]
            cos, sin = angles(twin, scheme, [5, 6, 7], d, "float64")
            rotate = ROPES[twin.name].rotate
            inputs = x if twin.name == "torch" else x.swapaxes(1, 2)
            got = twin.numpy(rotate(twin.array(inputs), twin.array(cos), twin.array(sin), layout))
            np.testing.assert_array_equal(got[..., rotary_dim:], inputs[..., rotary_dim:])
            assert (got[..., :rotary_dim] != inputs[..., :rotary_dim]).all()


def test_heads_that_cannot_hold_the_pairs_are_refused(twin: Any) -> None:
    x = draw(1, 1, 1, 3, 6)
    with pytest.raises(SettingError, match="rotates whole pairs inside the head"):
        twin.attention(RoPE("half", rotary_dim=8), {}, x, x, x)
    with pytest.raises(SettingError, match="rotates whole pairs inside the head"):
        twin.attention(RoPE("half"), {}, x[..., :5], x[..., :5], x[..., :5])


def test_tables_of_angles_are_made_once_and_kept_apart_by_every_setting() -> None:
    plain = tuple(frequencies(10_000.0, 8))
    first = byte_tables(plain, "float32")
    assert byte_tables(plain, "float32")[0] is first[0]
    others = [
        (tuple(frequencies(500_000.0, 8)), "float32"),
        (tuple(frequencies(10_000.0, 16)), "float32"),
        (plain, "float64"),
    ]
    for other in others:
        assert byte_tables(*other)[0] is not first[0]
    for twin in (TorchTwin(), JaxTwin()):
        cos = [angles(twin, RoPE("half", base=base), [3], 8, "float32")[0] for base in (1e4, 5e5)]
        assert (cos[0] != cos[1])[..., 1:].all()
    assert not first[0].flags.writeable
    # A shorter call after a longer one makes none.
    made = byte_tables.cache_info().misses
    for twin in (TorchTwin(), JaxTwin()):
        for length in (10, 5):
            angles(twin, RoPE("half"), np.arange(length), 8, "float32")
    assert byte_tables.cache_info().misses == made
