"""Positions that depend on the tokens between: long inputs, packed rows, evicted tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import relpos_torch
from parity_tests.twins.twin import TorchTwin, draw, draw_params, fails, passes, unchecked
from relpos import AttentionSettings, CoPE, ForgettingAttention, oracle
from relpos.errors import ShapeError
from relpos.oracle import Precision
from relpos.parity import Comparison, compare
from relpos_torch.schemes import forgetting_attention

FORGETTING = ForgettingAttention()


def long_input(twin: Any, bias: float) -> Comparison:
    """A few keys that two queries read at the end of a long input, in float32."""
    L, d = 2_003, 4
    q = draw(0, 1, 1, 2, d, dtype="float32")
    k, v = (draw(n, 1, 1, L, d, dtype="float32") for n in (1, 2))
    gates = draw(3, 1, 1, L, 1, dtype="float32") + np.float32(bias)
    mask = np.zeros((1, 1, 2, L), bool)
    mask[..., [0, L // 2, L - 400, L - 40, L - 7, L - 4, L - 2]] = True
    options: dict[str, Any] = {"mask": mask, "causal": True}
    truth = oracle.attention(
        FORGETTING,
        {},
        *(a.astype(np.float64) for a in (q, k, v)),
        key_features=gates.astype(np.float64),
        **options,
        precision=Precision.of("float32"),
    )
    features = gates if twin.name == "torch" else gates.swapaxes(1, 2)
    got = twin.attention(FORGETTING, {}, q, k, v, key_features=features, **options)
    return compare(truth.output, got)


@pytest.mark.parametrize("bias", [0.0, 5.0])
def test_a_long_input_forgets_to_the_last_digit(twin: Any, bias: float) -> None:
    passes(long_input(twin, bias))


def test_gates_are_real_numbers(twin: Any) -> None:
    q = draw(0, 1, 1, 3, 4)
    gates = draw(1, 1, 1, 3, 1) if twin.name == "torch" else draw(1, 1, 3, 1, 1)
    with unchecked(), pytest.raises(ShapeError, match="hold real floating numbers"):
        twin.attention(FORGETTING, {}, q, q, q, key_features=gates > 0.0)


def test_a_running_sum_alone_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    # In PyTorch, which compiles nothing and so forgets the right sums at once.
    right = forgetting_attention.running_sums
    monkeypatch.setattr(forgetting_attention, "running_sums", lambda x: right(x)[..., :1])
    fails(long_input(TorchTwin(), 0.0))


def test_sequences_of_one_row_are_alone_at_positions_of_their_own(twin: Any) -> None:
    H, d = 3, 5
    q, k, v = (draw(n, 1, H, 7, d) for n in range(3))
    gates = draw(3, 1, H, 7, 1)
    segment = np.array([1, 0, 0, 1, 1, 0, 1])  # in any order in the row
    at = np.array([100, 0, 1, 101, 102, 2, 103])
    features = gates if twin.name == "torch" else gates.swapaxes(1, 2)
    got = twin.attention(
        FORGETTING,
        {},
        q,
        k,
        v,
        key_features=features,
        mask=(segment[:, None] == segment)[None, None],
        causal=True,
        query_positions=at,
        key_positions=at,
    )
    for part in (segment == 0, segment == 1):
        few = (a[:, :, part] for a in (q, k, v))
        alone = oracle.attention(
            FORGETTING, {}, *few, key_features=gates[:, :, part], causal=True
        ).output
        passes(compare(alone, got[:, :, part]))


def test_a_fresh_layer_remembers_and_says_what_it_would_take_to_forget() -> None:
    settings = AttentionSettings(24, 3, FORGETTING, causal=True)
    layer = relpos_torch.RelativeAttention.from_settings(settings)
    assert (layer.forget_bias == 5.0).all()
    with torch.no_grad():
        layer.forget_kernel.zero_()
        layer.forget_bias.fill_(-1e4)  # whatever came before is gone
        x = torch.randn(2, 7, 24)
        alone = torch.cat([layer(token) for token in x.split(1, 1)], 1)
        torch.testing.assert_close(layer(x), alone)


def test_at_whole_places_both_twins_take_the_slope_to_the_right(twin: Any) -> None:
    # Keys of zero count one half each: places 3.5, 3, 2.5 .. 0.5, of which 3 is the last there is.
    scheme, H, L, d = CoPE(num_positions=4), 3, 7, 5
    q, v, cotangent = (draw(n, 1, H, L, d) for n in range(3))
    k, params = np.zeros_like(q), draw_params(scheme, H, d)
    truth = oracle.attention(scheme, params, q, k, v, causal=True, cotangent=cotangent)
    gradients = twin.gradients(scheme, params, q, k, v, cotangent=cotangent, causal=True)
    for name, gradient in gradients.items():
        passes(compare(truth.gradients[name], gradient))


def test_a_key_that_is_not_a_number_has_no_place(twin: Any) -> None:
    scheme = CoPE(num_positions=4)
    q, k, v = (draw(n, 2, 3, 7, 5) for n in range(3))
    k[1, :, 2] = np.nan
    out = twin.attention(scheme, draw_params(scheme, 3, 5), q, k, v)
    assert np.isfinite(out[0]).all()
    assert np.isnan(out[1]).all()
