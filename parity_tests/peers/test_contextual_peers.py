"""Forgetting attention and CoPE beside x-transformers, in float64."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest
import torch

from parity_tests.twins.twin import draw, draw_params, fails, passes
from relpos import CoPE, ForgettingAttention, oracle
from relpos.parity import Comparison, compare

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it calls torch.jit.script
    from x_transformers import x_transformers
    from x_transformers.attend import Attend

B, H, L, d = 2, 3, 7, 8
TOKENS = {name: draw(n, B, H, L, d) for n, name in enumerate("qkv")}
COTANGENT = draw(3, B, H, L, d)


def against(
    truth: oracle.Result, leaves: dict[str, Any], *, cope: Any = None, bias: Any = None
) -> list[Comparison]:
    """x-transformers' output and the gradients of its leaves, compared with the oracle's."""
    attend = Attend(heads=H, causal=True, scale=d**-0.5, cope=cope)
    attend.attn_fn = functools.partial(torch.softmax, dim=-1)  # theirs is in float32 always
    out = attend(*(leaves[name] for name in "qkv"), attn_bias=bias)[0]
    out.backward(torch.tensor(COTANGENT))
    found = [compare(truth.output, out.detach().numpy())]
    for name, leaf in leaves.items():
        expected = truth.gradients[name]
        found.append(compare(expected, leaf.grad.numpy().reshape(expected.value.shape), what=name))
    return found


def cope(scheme: CoPE) -> list[Comparison]:
    """x-transformers' CoPE as if it were this scheme."""
    params = draw_params(scheme, H, d)
    truth = oracle.attention(scheme, params, **TOKENS, causal=True, cotangent=COTANGENT)
    module = x_transformers.CoPE(d, H, scheme.num_positions).double()
    with torch.no_grad():
        module.pos_emb.copy_(torch.tensor(params["position_embedding"][0]))
    leaves = {name: torch.tensor(array, requires_grad=True) for name, array in TOKENS.items()}
    return against(truth, {**leaves, "position_embedding": module.pos_emb}, cope=module)


def test_x_transformers_counts_alike(twin: Any) -> None:
    scheme = CoPE(num_positions=4)
    for comparison in cope(scheme):
        passes(comparison)
    params = draw_params(scheme, H, d)
    truth = oracle.attention(scheme, params, **TOKENS, causal=True)
    got = twin.attention(scheme, params, *TOKENS.values(), causal=True)
    passes(compare(truth.output, got))


def test_a_scaled_table_is_told_apart() -> None:
    fails(cope(CoPE(num_positions=4, scaled=True))[0])


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_x_transformers_forgets_alike(twin: Any, factor: float) -> None:
    gates = draw(4, B, H, L, 1)
    scheme = ForgettingAttention()
    truth = oracle.attention(
        scheme, {}, **TOKENS, causal=True, key_features=gates, cotangent=COTANGENT
    )
    # Its projection made the identity, so that what it reads of a token is the gates' input.
    module = x_transformers.DataDependentAlibi(H, H, post_log_scale=factor).double()
    with torch.no_grad():
        module.to_forget_gates[0].weight.copy_(torch.eye(H))
        module.to_forget_gates[0].bias.zero_()
    leaves = {
        name: torch.tensor(array, requires_grad=True)
        for name, array in {**TOKENS, "key_features": gates}.items()
    }
    bias = module(leaves["key_features"][..., 0].mT)
    found = against(truth, leaves, bias=bias)
    if factor != 1.0:
        fails(found[0])
        return
    for comparison in found:
        passes(comparison)
    features = gates if twin.name == "torch" else gates.swapaxes(1, 2)
    got = twin.attention(scheme, {}, *TOKENS.values(), causal=True, key_features=features)
    passes(compare(truth.output, got))
