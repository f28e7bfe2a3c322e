"""RoPE and xPos beside transformers, rotary-embedding-torch and x-transformers.

All of these compute frequencies and angles in float32, whatever they are given, so they are judged
there: at positions this near to 0 that is as good as exact angles.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest
import rotary_embedding_torch
import torch
from transformers import (
    DeepseekV3Config,
    GPTJConfig,
    GPTNeoXConfig,
    LlamaConfig,
    Qwen2VLTextConfig,
    Qwen3VLTextConfig,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3

from parity_tests.twins.twin import draw, fails, passes
from relpos import (
    Axial,
    DynamicNTK,
    LinearScaling,
    Llama3Scaling,
    LongRoPE,
    NTKScaling,
    RoPE,
    Scheme,
    Sections,
    XPos,
    YaRN,
    oracle,
)
from relpos.oracle import Precision
from relpos.parity import compare

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it calls torch.jit.script
    from x_transformers import x_transformers

B, H, L, d = 2, 3, 7, 8
SINGLE = Precision.of("float32")
AT = torch.arange(L)[None]
LONG = ((1.0, 1.1, 1.3, 1.7), (1.5, 2.0, 3.0, 5.0))
KINDS: dict[str, tuple[RoPE, dict[str, Any]]] = {
    "linear": (
        RoPE("half", base=100.0, scaling=LinearScaling(4.0)),
        {"rope_type": "linear", "factor": 4.0},
    ),
    "dynamic": (
        RoPE("half", base=100.0, scaling=DynamicNTK(2.0, original_length=5)),
        {"rope_type": "dynamic", "factor": 2.0},
    ),
    "yarn": (
        RoPE("half", base=100.0, scaling=YaRN(4.0, 64, beta_fast=4.0)),
        {"rope_type": "yarn", "factor": 4.0, "beta_fast": 4.0},
    ),
    "yarn as it comes": (
        RoPE("half", base=100.0, scaling=YaRN(4.0, 64, 4.0, 1.5, truncate=False)),
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "beta_fast": 4.0,
            "beta_slow": 1.5,
            "truncate": False,
        },
    ),
    "yarn with a ratio": (
        RoPE("half", base=100.0, scaling=YaRN(4.0, 64, 4.0, mscale=0.7, mscale_all_dim=0.3)),
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "beta_fast": 4.0,
            "mscale": 0.7,
            "mscale_all_dim": 0.3,
        },
    ),
    "yarn with a factor": (
        RoPE("half", base=100.0, scaling=YaRN(4.0, 64, 4.0, attention_factor=0.8)),
        {"rope_type": "yarn", "factor": 4.0, "beta_fast": 4.0, "attention_factor": 0.8},
    ),
    "longrope, long": (
        RoPE("half", base=100.0, scaling=LongRoPE(*LONG, original_length=5, factor=4.0)),
        {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 5},
    ),
    "longrope, short": (
        RoPE("half", base=100.0, scaling=LongRoPE(*LONG, 7, attention_factor=1.2)),
        {"rope_type": "longrope", "attention_factor": 1.2, "original_max_position_embeddings": 7},
    ),
    "llama3": (
        RoPE("half", base=100.0, scaling=Llama3Scaling(8.0, original_length=32)),
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ),
    "proportional": (
        RoPE("half", 4, 100.0, partial="proportional", scaling=LinearScaling(2.0)),
        {"rope_type": "proportional", "factor": 2.0, "partial_rotary_factor": 0.5},
    ),
}


def agrees(twin: Any, scheme: Scheme, rotate: Any, *, d: int = d, **options: Any) -> None:
    """The peer's outputs and gradients are the oracle's, and so are the twin's outputs.

    Args:
        twin: The twin.
        scheme: What the peer should be.
        rotate: The peer: from q and k [B, H, L, d] to q and k rotated.
        d: Head width.
        options: `scale` or positions.
    """
    q, k, v, cotangent = (draw(n, B, H, L, d, dtype=np.float32) for n in range(4))
    exact = [a.astype(np.float64) for a in (q, k, v)]
    truth = oracle.attention(
        scheme,
        {},
        *exact,
        **options,
        cotangent=cotangent.astype(np.float64),
        precision=SINGLE,
    )
    inputs = [torch.tensor(a, requires_grad=True) for a in (q, k, v)]
    turned = rotate(*inputs[:2])
    attend = torch.nn.functional.scaled_dot_product_attention
    out = attend(*turned, inputs[2], scale=options.get("scale"))
    out.backward(torch.tensor(cotangent))
    passes(compare(truth.output, out.detach().numpy()))
    for name, tensor in zip("qkv", inputs, strict=True):
        assert tensor.grad is not None
        passes(compare(truth.gradients[name], tensor.grad.numpy()))
    expected = oracle.attention(scheme, {}, *exact, **options).output
    passes(compare(expected, twin.attention(scheme, {}, *exact, **options)))


def llama_rotary(parameters: dict[str, Any], length: int = 64) -> Any:
    """The rotary embedding of a Llama with these parameters."""
    stated = {"rope_theta": 100.0, "original_max_position_embeddings": 64, **parameters}
    if parameters["rope_type"] == "longrope":
        stated |= {"short_factor": [*LONG[0]], "long_factor": [*LONG[1]]}
    config = LlamaConfig(
        hidden_size=H * d,
        num_attention_heads=H,
        head_dim=d,
        max_position_embeddings=length,
        rope_parameters=stated,
    )
    return llama.LlamaRotaryEmbedding(config)


def test_every_kind_that_transformers_has_is_compared() -> None:
    assert {parameters["rope_type"] for _, parameters in KINDS.values()} == {*ROPE_INIT_FUNCTIONS}


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_scales_frequencies_alike(twin: Any, kind: str) -> None:
    scheme, parameters = KINDS[kind]
    rotary = llama_rotary(parameters, length=5 if kind == "dynamic" else 64)
    agrees(twin, scheme, lambda q, k: llama.apply_rotary_pos_emb(q, k, *rotary(q, AT)))


def test_another_setting_is_told_apart() -> None:
    scheme, parameters = KINDS["yarn"]
    rotary = llama_rotary(parameters)
    q = draw(1, B, H, L, d, dtype=np.float32)
    x = torch.tensor(q)
    turned = llama.apply_rotary_pos_emb(x, x, *rotary(x, AT))
    out = torch.nn.functional.scaled_dot_product_attention(*turned, x).numpy()
    exact = q.astype(np.float64)
    assert isinstance(scheme.scaling, YaRN)
    for change in ({"factor": 4.1}, {"beta_fast": 3.0}, {"truncate": False}):
        other = dataclasses.replace(scheme, scaling=dataclasses.replace(scheme.scaling, **change))
        expected = oracle.attention(other, {}, exact, exact, exact, precision=SINGLE).output
        fails(compare(expected, out))


def test_gptj_pairs_neighbours(twin: Any) -> None:
    rotary = gptj.GPTJRotaryEmbedding(GPTJConfig(n_embd=H * d, n_head=H, rotary_dim=4))

    def rotate(q: Any, k: Any) -> Any:
        turned = []
        for x in (q.transpose(1, 2), k.transpose(1, 2)):
            first = gptj.apply_rotary_pos_emb(x[..., :4], *rotary(x, AT.expand(B, L)))
            turned.append(torch.cat((first, x[..., 4:]), -1).transpose(1, 2))
        return turned

    agrees(twin, RoPE("interleaved", rotary_dim=4), rotate)


def test_gpt_neox_turns_a_slice(twin: Any) -> None:
    config = GPTNeoXConfig(
        hidden_size=H * d,
        num_attention_heads=H,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 100.0,
            "partial_rotary_factor": 0.5,
        },
    )
    rotary = neox.GPTNeoXRotaryEmbedding(config)
    scheme = RoPE("half", rotary_dim=4, base=100.0)
    agrees(twin, scheme, lambda q, k: neox.apply_rotary_pos_emb(q, k, *rotary(q, AT)))


@pytest.mark.parametrize(("mscale", "all_dim"), [(1.0, 1.0), (0.7, 0.3)])
def test_deepseek_takes_the_ratio_and_scales_the_scores_besides(
    twin: Any, mscale: float, all_dim: float
) -> None:
    parameters = {
        "rope_type": "yarn",
        "rope_theta": 100.0,
        "factor": 4.0,
        "beta_fast": 4.0,
        "beta_slow": 1.0,
        "mscale": mscale,
        "mscale_all_dim": all_dim,
        "original_max_position_embeddings": 64,
    }
    config = DeepseekV3Config(
        hidden_size=H * d, num_attention_heads=H, qk_rope_head_dim=d, rope_parameters=parameters
    )
    rotary = deepseek.DeepseekV3RotaryEmbedding(config)
    scale = deepseek.yarn_apply_mscale(parameters, d**-0.5)
    scaling = YaRN(4.0, 64, 4.0, mscale=mscale, mscale_all_dim=all_dim)
    assert scale == pytest.approx(
        d**-0.5 * YaRN(4.0, 64, mscale=all_dim, mscale_all_dim=1e-300).magnitude ** 2, rel=1e-12
    )
    agrees(
        twin,
        RoPE("interleaved", base=100.0, scaling=scaling),
        lambda q, k: deepseek.apply_rotary_pos_emb_interleave(q, k, *rotary(q, AT)),
        scale=scale,
    )


@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        (RoPE("interleaved", 6, 100.0), {}),
        (RoPE("interleaved", 6, 100.0, scaling=LinearScaling(3.0)), {"interpolate_factor": 3.0}),
        (RoPE("interleaved", 6, 100.0, scaling=NTKScaling(3.0)), {"theta_rescale_factor": 3.0}),
        (XPos("interleaved", 6, 100.0, 16.0), {"use_xpos": True, "xpos_scale_base": 16}),
    ],
    ids=["plain", "linear", "NTK", "xPos"],
)
def test_rotary_embedding_torch_agrees(twin: Any, scheme: Scheme, options: Any) -> None:
    peer = rotary_embedding_torch.RotaryEmbedding(
        6, theta=100.0, cache_if_possible=False, **options
    )

    def rotate(q: Any, k: Any) -> Any:
        if isinstance(scheme, XPos):
            return peer.rotate_queries_and_keys(q, k)
        return peer.rotate_queries_or_keys(q), peer.rotate_queries_or_keys(k)

    agrees(twin, scheme, rotate)


@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        (RoPE("interleaved", 6, 100.0), {}),
        (RoPE("interleaved", 6, 100.0, scaling=LinearScaling(3.0)), {"interpolation_factor": 3.0}),
        (RoPE("interleaved", 6, 100.0, scaling=NTKScaling(3.0)), {"base_rescale_factor": 3.0}),
        (XPos("interleaved", 6, 100.0, 16.0), {"use_xpos": True, "scale_base": 16}),
    ],
    ids=["plain", "linear", "NTK", "xPos"],
)
def test_x_transformers_agrees(twin: Any, scheme: Scheme, options: Any) -> None:
    peer = x_transformers.RotaryEmbedding(6, base=100.0, **options)

    def rotate(q: Any, k: Any) -> Any:
        angles, factor = peer(torch.arange(L))
        inverse = factor**-1.0 if isinstance(scheme, XPos) else 1.0
        turn = x_transformers.apply_rotary_pos_emb
        return turn(q, angles, factor), turn(k, angles, inverse)

    agrees(twin, scheme, rotate)


@pytest.mark.parametrize("order", ["contiguous", "interleaved"])
def test_qwen_deals_pairs_to_three_axes(twin: Any, order: Any) -> None:
    sizes = (4, 1, 3) if order == "contiguous" else (4, 3, 3)
    d = 2 * sum(sizes)
    parameters = {"rope_type": "default", "rope_theta": 100.0, "mrope_section": [*sizes]}
    config = Qwen2VLTextConfig if order == "contiguous" else Qwen3VLTextConfig
    rotary = (
        qwen2.Qwen2VLRotaryEmbedding if order == "contiguous" else qwen3.Qwen3VLTextRotaryEmbedding
    )
    module = rotary(
        config(hidden_size=H * d, num_attention_heads=H, head_dim=d, rope_parameters=parameters)
    )
    at = np.random.default_rng(0).integers(0, 7, (B, L, 3))
    place = torch.tensor(at).permute(2, 0, 1)
    agrees(
        twin,
        RoPE("half", base=100.0, axes=Sections(sizes, order=order)),
        lambda q, k: qwen2.apply_rotary_pos_emb(q, k, *module(q, place)),
        d=d,
        query_positions=at,
        key_positions=at,
    )


def test_qwen_vision_has_frequencies_for_height_and_for_width(twin: Any) -> None:
    d = 12
    config = Qwen2VLVisionConfig(
        embed_dim=H * d,
        num_heads=H,
        rope_parameters={"rope_type": "axial", "rope_theta": 100.0},
    )
    rotary = qwen2.Qwen2VLVisionRotaryEmbedding(config)
    at = np.random.default_rng(0).integers(0, 7, (1, L, 2))

    def rotate(q: Any, k: Any) -> Any:
        cos, sin = rotary(q, torch.tensor(at[0]))
        by_token = (x.transpose(1, 2) for x in (q, k))
        turned = qwen2.apply_rotary_pos_emb_vision(*by_token, cos, sin)
        return [x.transpose(1, 2) for x in turned]

    scheme = RoPE("half", base=100.0, axes=Axial((3, 3)))
    agrees(twin, scheme, rotate, d=d, query_positions=at, key_positions=at)


def test_rotary_embedding_torch_has_frequencies_for_every_axis(twin: Any) -> None:
    # A grid of 1 x 7 tokens from row 2 on: each axis has 4 of 8 channels.
    peer = rotary_embedding_torch.RotaryEmbedding(4, theta=100.0, cache_if_possible=False)
    angles = peer.get_axial_freqs(1, L, offsets=(2, 0)).reshape(L, d)
    turn = rotary_embedding_torch.apply_rotary_emb
    at = np.stack([np.full(L, 2), np.arange(L)], -1)[None]
    agrees(
        twin,
        RoPE("interleaved", base=100.0, axes=Axial((2, 2))),
        lambda q, k: (turn(angles, q), turn(angles, k)),
        query_positions=at,
        key_positions=at,
    )
