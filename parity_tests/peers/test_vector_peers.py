"""Vectors and biases per distance beside the attention layers of transformers.

Everything here is computed in float64, but for the Conformers and XLNet: their sinusoids are
computed in float32, whatever the model's dtype is, so they are judged there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    MT5Config,
    ParakeetEncoderConfig,
    T5Config,
    UMT5Config,
    VitsConfig,
    Wav2Vec2BertConfig,
    Wav2Vec2ConformerConfig,
    XLNetConfig,
    XLNetModel,
)
from transformers.models.mt5.modeling_mt5 import MT5Attention
from transformers.models.parakeet import modeling_parakeet as parakeet
from transformers.models.speecht5 import modeling_speecht5 as speecht5
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.umt5.modeling_umt5 import UMT5Attention
from transformers.models.vits.modeling_vits import VitsAttention
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention
from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as conformer

from parity_tests.twins.twin import draw, fails, passes
from relpos import T5, AttentionSettings, Scheme, Shaw, TransformerXL, Windowed, oracle
from relpos.oracle import Precision
from relpos.parity import compare

B, H, L, d = 2, 3, 7, 4
D = H * d
#: A peer's own parameter for each of our names, and how it becomes ours.
Weights = dict[str, tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]]


def drawn(module: torch.nn.Module, dtype: torch.dtype = torch.float64) -> Any:
    """The module in evaluation mode, with every parameter drawn."""
    module = module.to(dtype).eval()
    for n, parameter in enumerate(module.parameters()):
        values = torch.tensor(draw(n, *parameter.shape))
        parameter.data = (0.4 * values).to(dtype)
    return module


def same(tensor: torch.Tensor) -> torch.Tensor:
    """A parameter that both store alike."""
    return tensor


def by_head(weight: torch.Tensor) -> torch.Tensor:
    """A projection to the heads, from [H * d, D] to [D, H, d]."""
    return weight.T.reshape(-1, H, d)


def projections(peer: Any, query: str, key: str, value: str, out: str) -> Weights:
    """The weights of a layer under our names."""
    weights: Weights = {}
    for ours, theirs in zip(("query", "key", "value"), (query, key, value), strict=True):
        linear = getattr(peer, theirs)
        weights[f"{ours}.kernel"] = linear.weight, by_head
        if linear.bias is not None:
            weights[f"{ours}.bias"] = linear.bias, lambda bias: bias.reshape(H, d)
    linear = getattr(peer, out)
    weights["out.kernel"] = linear.weight, lambda weight: weight.T.reshape(H, d, -1)
    if linear.bias is not None:
        weights["out.bias"] = linear.bias, same
    return weights


def agrees(
    twin: Any,
    scheme: Scheme,
    weights: Weights,
    call: Any,
    *,
    causal: bool = False,
    dtype: str = "float64",
) -> dict[str, Any]:
    """The peer's output and gradients agree with the oracle, and the twin's output does.

    Returns:
        Settings, tensors and x, to try another scheme with.
    """
    arrays = {name: ours(own.detach()).numpy().copy() for name, (own, ours) in weights.items()}
    settings = AttentionSettings(D, H, scheme, causal=causal, bias="out.bias" in arrays)
    x, cotangent = (draw(n, B, L, D, dtype=np.dtype(dtype)) for n in (301, 302))
    exact = {name: array.astype(np.float64) for name, array in arrays.items()}
    truth = oracle.layer(
        settings,
        exact,
        x.astype(np.float64),
        cotangent=cotangent.astype(np.float64),
        precision=Precision.of(dtype),
    )
    inputs = torch.tensor(x, requires_grad=True)
    peer = call(inputs)
    leaves = [inputs, *(own for own, _ in weights.values())]
    found = torch.autograd.grad(peer, leaves, torch.tensor(cotangent))
    passes(compare(truth.output, peer.detach().numpy()))
    changes = [same, *(ours for _, ours in weights.values())]
    for name, gradient, ours in zip(("x", *weights), found, changes, strict=True):
        passes(compare(truth.gradients[name], ours(gradient).numpy()))
    passes(compare(truth.output, twin.layer(settings, arrays)(x)))
    return {"settings": settings, "tensors": exact, "x": x, "peer": peer.detach().numpy()}


@pytest.mark.parametrize("window", [2, 8])
def test_vits_is_windowed(twin: Any, window: int) -> None:
    config = VitsConfig(hidden_size=D, num_attention_heads=H, window_size=window)
    peer = drawn(VitsAttention(config))
    weights = projections(peer, "q_proj", "k_proj", "v_proj", "out_proj")
    weights |= {"key_table": (peer.emb_rel_k, same), "value_table": (peer.emb_rel_v, same)}
    tried = agrees(twin, Windowed(window, window), weights, lambda x: peer(x)[0])
    if window < L - 1:
        other = AttentionSettings(D, H, Shaw(window, window))
        expected = oracle.layer(other, tried["tensors"], tried["x"]).output
        fails(compare(expected, tried["peer"]))


def test_wav2vec2_bert_is_shaw_with_two_reaches(twin: Any) -> None:
    config = Wav2Vec2BertConfig(
        hidden_size=D,
        num_attention_heads=H,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=4,
        right_max_position_embeddings=2,
        attn_implementation="eager",
    )
    peer = drawn(Wav2Vec2BertSelfAttention(config))
    weights = projections(peer, "linear_q", "linear_k", "linear_v", "linear_out")
    weights["key_table"] = peer.distance_embedding.weight, lambda table: table[None]
    agrees(twin, Shaw(4, 2, values=False), weights, lambda x: peer(x)[0])


@pytest.mark.parametrize("reach", [3, 9])
def test_speecht5_is_shaw_with_its_rows_reversed(twin: Any, reach: int) -> None:
    # Its 2 * reach rows are those of i - j from -reach to reach - 1.
    rows = drawn(speecht5.SpeechT5RelativePositionalEncoding(d, reach))
    peer = drawn(speecht5.SpeechT5Attention(D, H))
    weights = projections(peer, "q_proj", "k_proj", "v_proj", "out_proj")
    weights["key_table"] = rows.pe_k.weight, lambda table: table.flip(0)[None]
    scheme = Shaw(reach - 1, reach, values=False)
    agrees(twin, scheme, weights, lambda x: peer(x, position_bias=rows(x))[0])


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize(
    ("attention", "configuration"),
    [(T5Attention, T5Config), (MT5Attention, MT5Config), (UMT5Attention, UMT5Config)],
    ids=["T5", "MT5", "UMT5"],
)
def test_t5_and_its_kin_are_t5(twin: Any, attention: Any, configuration: Any, causal: bool) -> None:
    config = configuration(
        d_model=D,
        d_kv=d,
        num_heads=H,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=5,
        is_decoder=causal,
        attn_implementation="eager",
    )
    peer = drawn(attention(config, has_relative_attention_bias=True, layer_idx=0))
    weights = projections(peer, "q", "k", "v", "o")
    weights["bias_table"] = peer.relative_attention_bias.weight, lambda table: table.T
    mask = torch.zeros(1, 1, L, L, dtype=torch.float64)
    if causal:
        mask = mask.masked_fill(torch.ones(L, L).triu(1).bool(), -torch.inf)
    name = "attention_mask" if attention is UMT5Attention else "mask"
    scheme = T5(8, 5, bidirectional=not causal)
    agrees(twin, scheme, weights, lambda x: peer(x, **{name: mask})[0], causal=causal)


def transformer_xl(peer: Any, kernel: str, content: str, position: str) -> Weights:
    """A Conformer's own weights under our names."""
    return {
        "content_bias": (getattr(peer, content), same),
        "position_bias": (getattr(peer, position), same),
        "position_kernel": (
            getattr(peer, kernel).weight,
            lambda weight: by_head(weight).transpose(0, 1),
        ),
    }


def test_wav2vec2_conformer_is_transformer_xl_in_turn(twin: Any) -> None:
    config = Wav2Vec2ConformerConfig(
        hidden_size=D,
        num_attention_heads=H,
        position_embeddings_type="relative",
        max_source_positions=L,
        attn_implementation="eager",
    )
    encoding = conformer.Wav2Vec2ConformerRelPositionalEmbedding(config)
    peer = drawn(conformer.Wav2Vec2ConformerSelfAttention(config), torch.float32)
    weights = projections(peer, "linear_q", "linear_k", "linear_v", "linear_out")
    weights |= transformer_xl(peer, "linear_pos", "pos_bias_u", "pos_bias_v")

    def call(x: Any) -> Any:
        return peer(x, relative_position_embeddings=encoding(x))[0]

    scheme = TransformerXL("interleaved", width=D)
    tried = agrees(twin, scheme, weights, call, dtype="float32")
    for other in (TransformerXL("concat", D), TransformerXL("interleaved", D, symmetric=True)):
        settings = AttentionSettings(D, H, other)
        single = Precision.of("float32")
        expected = oracle.layer(settings, tried["tensors"], tried["x"], precision=single).output
        fails(compare(expected, tried["peer"]))


def test_parakeet_is_transformer_xl_in_turn(twin: Any) -> None:
    config = ParakeetEncoderConfig(
        hidden_size=D, num_attention_heads=H, attn_implementation="eager"
    )
    encoding = parakeet.ParakeetEncoderRelPositionalEncoding(config)
    peer = drawn(parakeet.ParakeetEncoderAttention(config, 0), torch.float32)
    weights = projections(peer, "q_proj", "k_proj", "v_proj", "o_proj")
    weights |= transformer_xl(peer, "relative_k_proj", "bias_u", "bias_v")
    agrees(
        twin,
        TransformerXL("interleaved", width=D),
        weights,
        lambda x: peer(x, encoding(x))[0],
        dtype="float32",
    )


@pytest.mark.parametrize("clamp", [None, 3])
def test_xlnet_with_a_memory_is_transformer_xl(twin: Any, clamp: int | None) -> None:
    config = XLNetConfig(
        vocab_size=8, d_model=D, n_layer=1, n_head=H, d_inner=2, clamp_len=clamp or -1
    )
    model = drawn(XLNetModel(config), torch.float32)
    peer = model.layer[0].rel_attn
    Lq, Lk = 5, 8  # three tokens of memory
    q, k, v = (draw(n, B, H, size, d, dtype=np.float32) for n, size in enumerate((Lq, Lk, Lk)))
    encoding = model.relative_positional_encoding(Lq, Lk, bsz=B)
    rows = torch.einsum("ibh,hnd->ibnd", encoding, peer.r)
    out = peer.rel_attn_core(*(torch.tensor(a).permute(2, 0, 1, 3) for a in (q, k, v)), rows)
    params = {
        "content_bias": peer.r_w_bias,
        "position_bias": peer.r_r_bias,
        "position_kernel": peer.r.transpose(0, 1),
    }
    arrays = {name: np.array(tensor.detach().numpy()) for name, tensor in params.items()}
    exact = {name: array.astype(np.float64) for name, array in arrays.items()}
    scheme = TransformerXL("concat", width=D, clamp=clamp)
    expected = oracle.attention(
        scheme,
        exact,
        *(a.astype(np.float64) for a in (q, k, v)),
        precision=Precision.of("float32"),
    ).output
    passes(compare(expected, out.detach().permute(1, 2, 0, 3).numpy()))
    passes(compare(expected, twin.attention(scheme, arrays, q, k, v)))
