"""The twins and the oracle beside implementations that nobody here wrote."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnx.reference
import pytest
import torch
from onnx import TensorProto, helper

import relpos_torch
from parity_tests.twins.twin import draw, draw_params, fails, passes
from relpos import T5, AttentionSettings, NoPosition, RoPE, oracle
from relpos.oracle import Precision
from relpos.oracle.schemes.t5 import bucket
from relpos.parity import compare
from relpos.weights import Weights, load_into

B, H, Lq, Lk, d = 2, 6, 5, 7, 8
SINGLE = Precision.of("float32")


def test_torch_scaled_dot_product_attention_is_no_position(twin: Any) -> None:
    q, k, v = draw(1, B, H, Lq, d), draw(2, B, 2, Lk, d), draw(3, B, 2, Lk, d)
    mask = np.random.default_rng(4).random((B, 1, Lq, Lk)) > 0.3
    mask[1, :, 2] = False
    expected = oracle.attention(NoPosition(), {}, q, k, v, mask=mask).output
    peer = torch.nn.functional.scaled_dot_product_attention(
        *(torch.tensor(a) for a in (q, k, v)), attn_mask=torch.tensor(mask), enable_gqa=True
    )
    passes(compare(expected, peer.numpy()))
    passes(compare(expected, twin.attention(NoPosition(), {}, q, k, v, mask=mask)))


def test_torch_attention_with_a_bias_for_a_mask_is_t5(twin: Any) -> None:
    scheme = T5(8, 20)
    q, k, v = draw(1, B, H, Lq, d), draw(2, B, H, Lk, d), draw(3, B, H, Lk, d)
    params = draw_params(scheme, H, d)
    bias = np.zeros((1, H, Lq, Lk))
    for i in range(Lq):
        for j in range(Lk):
            bias[0, :, i, j] = params["bias_table"][:, bucket(scheme, j - (i + Lk - Lq))]
    expected = oracle.attention(scheme, params, q, k, v).output
    peer = torch.nn.functional.scaled_dot_product_attention(
        *(torch.tensor(a) for a in (q, k, v)), attn_mask=torch.tensor(bias), scale=1.0
    )
    passes(compare(expected, peer.numpy()))
    passes(compare(expected, twin.attention(scheme, params, q, k, v)))


def test_jax_dot_product_attention_is_no_position(twin: Any) -> None:
    # Its softmax is in float32 whatever it is given, so it can only be judged there.
    q, k, v = (draw(n, B, H, L, d, dtype=np.float32) for n, L in enumerate((Lq, Lk, Lk)))
    exact = [a.astype(np.float64) for a in (q, k, v)]
    expected = oracle.attention(NoPosition(), {}, *exact, precision=SINGLE).output
    peer = jax.nn.dot_product_attention(*(jnp.asarray(a.swapaxes(1, 2)) for a in (q, k, v)))
    passes(compare(expected, np.asarray(peer).swapaxes(1, 2)))
    passes(compare(expected, twin.attention(NoPosition(), {}, q, k, v)))


def test_torch_multihead_attention_is_the_layer_without_positions() -> None:
    settings = AttentionSettings(12, 3, NoPosition())
    peer = torch.nn.MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64)
    torch.nn.init.normal_(peer.in_proj_bias)
    tensors = {}
    for name, weight, bias in zip(
        ("query", "key", "value"),
        peer.in_proj_weight.detach().chunk(3),
        peer.in_proj_bias.detach().chunk(3),
        strict=True,
    ):
        tensors[f"{name}.kernel"] = weight.T.reshape(12, 3, 4).numpy()
        tensors[f"{name}.bias"] = bias.reshape(3, 4).numpy()
    tensors["out.kernel"] = peer.out_proj.weight.detach().T.reshape(3, 4, 12).numpy()
    tensors["out.bias"] = peer.out_proj.bias.detach().numpy()
    ours = relpos_torch.RelativeAttention.from_settings(settings, dtype=torch.float64)
    load_into(ours, Weights({"": settings}, tensors))
    x = draw(1, B, Lq, 12)
    expected = oracle.layer(settings, tensors, x).output
    inputs = torch.tensor(x)
    passes(compare(expected, peer(inputs, inputs, inputs)[0].detach().numpy()))
    passes(compare(expected, ours(inputs).detach().numpy()))


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [4, 8])
def test_the_onnx_operator_rotates_like_rope(twin: Any, layout: Any, rotary_dim: int) -> None:
    scheme = RoPE(layout, rotary_dim=rotary_dim)
    q, k = (draw(n, B, H, Lk, d, dtype=np.float32) for n in range(2))
    frequency = 10_000.0 ** (-np.arange(0, rotary_dim, 2) / rotary_dim)
    angle = np.arange(Lk)[:, None] * frequency
    rotated = [_onnx_rotary(x, np.cos(angle), np.sin(angle), layout) for x in (q, k)]
    exact = [a.astype(np.float64) for a in (q, k, k)]
    expected = oracle.attention(scheme, {}, *exact, precision=SINGLE).output
    peer = torch.nn.functional.scaled_dot_product_attention(
        *(torch.tensor(a) for a in (*rotated, k))
    )
    passes(compare(expected, peer.numpy()))
    passes(compare(expected, twin.attention(scheme, {}, q, k, k)))
    other = RoPE("interleaved" if layout == "half" else "half", rotary_dim=rotary_dim)
    fails(compare(expected, twin.attention(other, {}, q, k, k)))


def _onnx_rotary(x: Any, cos: Any, sin: Any, layout: str) -> Any:
    """The operator RotaryEmbedding of opset 23, by ONNX's own reference evaluator."""
    rotary_dim = 2 * cos.shape[-1]
    node = helper.make_node(
        "RotaryEmbedding",
        ["x", "cos", "sin", "at"],
        ["y"],
        interleaved=int(layout == "interleaved"),
        rotary_embedding_dim=0 if rotary_dim == x.shape[-1] else rotary_dim,
    )
    kinds = {"x": TensorProto.FLOAT, "cos": TensorProto.FLOAT, "sin": TensorProto.FLOAT}
    inputs = [helper.make_tensor_value_info(n, kind, None) for n, kind in kinds.items()]
    inputs.append(helper.make_tensor_value_info("at", TensorProto.INT64, None))
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "rotary", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    feeds = {
        "x": x,
        "cos": cos.astype(np.float32),
        "sin": sin.astype(np.float32),
        "at": np.tile(np.arange(x.shape[2]), (len(x), 1)),
    }
    return onnx.reference.ReferenceEvaluator(model).run(None, feeds)[0]
