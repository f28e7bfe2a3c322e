"""Biases by formula or small network beside transformers and x-transformers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BloomConfig, FalconConfig, MptConfig
from transformers.models.bloom import modeling_bloom as bloom
from transformers.models.falcon import modeling_falcon as falcon
from transformers.models.mpt import modeling_mpt as mpt

from parity_tests.twins.twin import draw, fails, passes
from relpos import ALiBi, AttentionSettings, ContinuousBias, oracle
from relpos.oracle import Estimate, Precision
from relpos.parity import compare

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it calls torch.jit.script
    from x_transformers import x_transformers

B, H, L, d = 2, 6, 7, 4
D = H * d
#: What no query may see: [1, 1, L, L].
FUTURE = torch.ones(L, L, dtype=torch.bool).triu(1)[None, None]


def layer(scheme: ALiBi, dtype: Any) -> tuple[dict[str, Any], Any]:
    """A causal layer's weights and its input."""
    table = AttentionSettings(D, H, scheme, causal=True).parameters()
    tensors = {p.name: (draw(n, *p.shape) * 0.4).astype(dtype) for n, p in enumerate(table)}
    return tensors, draw(99, B, L, D, dtype=dtype)


def fused(tensors: dict[str, Any], name: str, *, by_head: bool) -> torch.Tensor:
    """The three projections as one: by head, or one after another."""
    sides = [torch.tensor(tensors[f"{side}.{name}"]) for side in ("query", "key", "value")]
    return torch.stack(sides, -2 if by_head else -3).flatten(-3)


def fill(module: Any, tensors: dict[str, Any], joint: str, out: str, *, by_head: bool) -> None:
    """Set the weights of a peer's module, whose projections have these names."""
    weights = {
        joint: (fused(tensors, "kernel", by_head=by_head), fused(tensors, "bias", by_head=by_head)),
        out: (torch.tensor(tensors["out.kernel"]).flatten(0, 1), torch.tensor(tensors["out.bias"])),
    }
    with torch.no_grad():
        for name, (kernel, bias) in weights.items():
            linear = module.get_submodule(name)
            linear.weight = torch.nn.Parameter(kernel.T)
            if linear.bias is not None:
                linear.bias = torch.nn.Parameter(bias)
    module.eval()


def judge(twin: Any, scheme: ALiBi, other: ALiBi, tensors: Any, x: Any, got: torch.Tensor) -> None:
    """The peer's layer is ours with one scheme, and not with another."""
    exact = {name: array.astype(np.float64) for name, array in tensors.items()}
    settings, wrong = (AttentionSettings(D, H, each, causal=True) for each in (scheme, other))
    truths = [
        oracle.layer(each, exact, x.astype(np.float64), precision=Precision.of(x.dtype.name)).output
        for each in (settings, wrong)
    ]
    passes(compare(truths[0], got.detach().numpy()))
    passes(compare(truths[0], twin.layer(settings, tensors)(x)))
    fails(compare(truths[1], got.detach().numpy()))


# Bloom and MPT take their softmax in float32, whatever they are given.
@pytest.mark.parametrize("symmetric", [False, True])
def test_bloom(twin: Any, symmetric: bool) -> None:
    scheme = ALiBi(symmetric=symmetric)
    tensors, x = layer(scheme, np.float32)
    peer = bloom.BloomAttention(BloomConfig(hidden_size=D, n_head=H, hidden_dropout=0.0), 0)
    fill(peer, tensors, "query_key_value", "dense", by_head=True)
    alibi = bloom.build_alibi_tensor(torch.ones(B, L), H, torch.float32)
    mask = torch.zeros(1, 1, L, L).masked_fill(FUTURE, torch.finfo(torch.float32).min)
    inputs = torch.tensor(x)
    got = peer(inputs, torch.zeros_like(inputs), alibi, mask)[0]
    judge(twin, scheme, ALiBi(scaled=True), tensors, x, got)


def test_mpt_with_another_largest_bias(twin: Any) -> None:
    scheme = ALiBi(symmetric=False, max_bias=4.0)
    tensors, x = layer(scheme, np.float32)
    for name in ("query", "key", "value", "out"):
        tensors[f"{name}.bias"] = np.zeros_like(tensors[f"{name}.bias"])  # MPT has none
    peer = mpt.MptAttention(MptConfig(d_model=D, n_heads=H), 0)
    fill(peer, tensors, "Wqkv", "out_proj", by_head=False)
    got = peer(torch.tensor(x), mpt.build_mpt_alibi_tensor(H, L, 4.0), attention_mask=FUTURE)
    judge(twin, scheme, ALiBi(), tensors, x, got[0])


def test_falcon_adds_it_before_the_scaling(twin: Any) -> None:
    scheme = ALiBi(scaled=True)
    tensors, x = layer(scheme, np.float64)
    config = FalconConfig(
        hidden_size=D,
        num_attention_heads=H,
        multi_query=False,
        bias=True,
        alibi=True,
        attn_implementation="eager",
    )
    peer = falcon.FalconAttention(config, 0)
    fill(peer, tensors, "query_key_value", "dense", by_head=True)
    # 6 heads' slopes are powers of two, which its bfloat16 holds exactly.
    alibi = falcon.build_alibi_tensor(torch.ones(B, L, dtype=torch.long), H, torch.float64)
    mask = torch.zeros(1, 1, L, L, dtype=torch.float64).masked_fill(
        FUTURE, torch.finfo(torch.float64).min
    )
    got = peer(torch.tensor(x), alibi, mask)[0]
    judge(twin, scheme, ALiBi(), tensors, x, got)


def test_slopes_of_bloom_and_mpt() -> None:
    ones = torch.ones(1, 2, dtype=torch.long)
    for heads in range(1, 129):
        exact = np.array(ALiBi().slopes(heads))
        # A base rounded to float32 and raised to the power of up to the number of heads.
        expected = Estimate(exact, 4.0 * 2.0**-24 * heads * exact)
        for got in (
            bloom.build_alibi_tensor(ones, heads, torch.float32)[:, 0, 1],
            -mpt.build_mpt_alibi_tensor(heads, 2)[:, 0, 0],
        ):
            passes(compare(expected, got.numpy()))


@pytest.mark.parametrize("heads", [3, 5])
def test_x_transformers_symmetric_with_some_heads_without(twin: Any, heads: int) -> None:
    scheme = ALiBi(unbiased_heads=H - heads)
    q, k, v = (draw(n, B, H, length, d) for n, length in enumerate((5, L, L)))
    peer = x_transformers.AlibiPositionalBias(heads, total_heads=H).double()
    got = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.tensor, (q, k, v)), attn_mask=peer(5, L)
    )
    truth = oracle.attention(scheme, {}, q, k, v).output
    passes(compare(truth, got.numpy()))
    passes(compare(truth, twin.attention(scheme, {}, q, k, v)))
    fails(compare(truth, twin.attention(ALiBi(), {}, q, k, v)))


@pytest.mark.parametrize("distance", ["linear", "log"])
@pytest.mark.parametrize("depth", [1, 3])
def test_x_transformers_dynamic_position_bias(twin: Any, depth: int, distance: Any) -> None:
    # It reads distances in float32, which its weights must have, too.
    scheme = ContinuousBias(5, depth, distance=distance)
    q, k, v = (draw(n, B, H, length, d, dtype=np.float32) for n, length in enumerate((5, L, L)))
    torch.manual_seed(depth)
    peer = x_transformers.DynamicPositionBias(
        5, heads=H, depth=depth, log_distance=distance == "log"
    )
    *inner, last = peer.mlp
    params = {"output_kernel": last.weight, "output_bias": last.bias}
    for n, (linear, *_) in enumerate(inner, start=1):
        end = "" if n == 1 else f"_{n}"
        # What it reads is i - j.
        params[f"hidden_kernel{end}"] = linear.weight.T[None] * (-1.0 if n == 1 else 1.0)
        params[f"hidden_bias{end}"] = linear.bias[None]
    arrays = {name: tensor.detach().numpy() for name, tensor in params.items()}
    got = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.tensor, (q, k, v)), attn_mask=peer(5, L)[None].expand(B, -1, -1, -1)
    )
    truth, wrong = (
        oracle.attention(
            each,
            {name: array.astype(np.float64) for name, array in arrays.items()},
            *(a.astype(np.float64) for a in (q, k, v)),
            precision=Precision.of("float32"),
        ).output
        for each in (scheme, ContinuousBias(5, depth, "gelu", distance))
    )
    passes(compare(truth, got.detach().numpy()))
    passes(compare(truth, twin.attention(scheme, arrays, q, k, v)))
    fails(compare(wrong, got.detach().numpy()))
