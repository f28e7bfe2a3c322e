"""DeBERTa, WavLM and Inkling beside transformers, in float64.

The square root of d * (1 + terms) is taken in float32 by their DeBERTa, so head widths are chosen
for which that number is a square.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import DebertaConfig, DebertaV2Config
from transformers.models.deberta import modeling_deberta as deberta
from transformers.models.deberta_v2 import modeling_deberta_v2 as deberta_v2
from transformers.models.inkling import modeling_inkling as inkling
from transformers.models.wavlm import modeling_wavlm as wavlm

from parity_tests.twins.twin import Arrays, draw, fails, passes
from relpos import AttentionSettings, DeBERTa, GatedT5, LowRankBank, oracle
from relpos.distance import deberta_bucket, deberta_row_map, t5_bucket
from relpos.oracle import Precision
from relpos.oracle.schemes.deberta import row
from relpos.parity import compare, compare_exact

B, H, L = 2, 3, 17
MASK = np.random.default_rng(3).random((B, 1, 1, L)) > 0.2


def filled(module: torch.nn.Module) -> Any:
    """The module in float64, every parameter drawn anew."""
    for n, parameter in enumerate(module.double().parameters()):
        parameter.data = 0.5 * torch.tensor(draw(n, *parameter.shape))
    return module


def by_head(linear: Any, side: str, part: Any = lambda tensor: tensor) -> Arrays:
    """Kernel [D, H, d] and bias [H, d] of one of the peer's projections, or of its gradients."""
    arrays = {f"{side}.kernel": part(linear.weight).T.unflatten(-1, (H, -1)).numpy()}
    if linear.bias is not None:
        arrays[f"{side}.bias"] = part(linear.bias).unflatten(-1, (H, -1)).numpy()
    return arrays


def value(tensor: torch.Tensor) -> torch.Tensor:
    """A parameter's value."""
    return tensor.detach()


def gradient(tensor: torch.Tensor) -> torch.Tensor:
    """A parameter's gradient."""
    assert tensor.grad is not None
    return tensor.grad


def identity(d: int) -> Arrays:
    """An output projection that changes nothing: the peers have theirs elsewhere."""
    return {"out.kernel": np.eye(H * d).reshape(H, d, H * d), "out.bias": np.zeros(H * d)}


def encoder_v2(scheme: DeBERTa, d: int) -> Any:
    """An encoder of one layer, which holds the table and its norm."""
    config = DebertaV2Config(
        hidden_size=H * d,
        num_attention_heads=H,
        num_hidden_layers=1,
        relative_attention=True,
        position_buckets=scheme.buckets or -1,
        max_relative_positions=scheme.max_distance,
        pos_att_type=[name for name in ("c2p", "p2c") if getattr(scheme, name)],
        share_att_key=scheme.shared,
        norm_rel_ebd="none" if scheme.norm_eps is None else "layer_norm",
        layer_norm_eps=scheme.norm_eps or 1e-7,
    )
    return filled(deberta_v2.DebertaV2Encoder(config)).eval()


def tensors_v2(encoder: Any, scheme: DeBERTa, part: Any) -> Arrays:
    """Its parameters under our names, or their gradients."""
    own = encoder.layer[0].attention.self
    arrays = {"position_table": part(encoder.rel_embeddings.weight).flip(0)[None].numpy()}
    if scheme.norm_eps is not None:
        arrays["position_norm_scale"] = part(encoder.LayerNorm.weight)[None].numpy()
        arrays["position_norm_bias"] = part(encoder.LayerNorm.bias)[None].numpy()
    for side in ("query", "key", "value"):
        arrays |= by_head(getattr(own, f"{side}_proj"), side, part)
    for side, wanted in (("key", scheme.c2p), ("query", scheme.p2c)):
        if wanted and not scheme.shared:
            found = by_head(getattr(own, f"pos_{side}_proj"), side, part)
            arrays[f"position_{side}_kernel"] = found[f"{side}.kernel"].swapaxes(0, 1)
            arrays[f"position_{side}_bias"] = found[f"{side}.bias"]
    return arrays


def output(encoder: Any, x: torch.Tensor) -> torch.Tensor:
    """What its one attention says."""
    position: torch.Tensor = encoder.layer[0].attention.self(
        x,
        torch.tensor(MASK).expand(B, 1, L, L),
        relative_pos=encoder.get_rel_pos(x),
        rel_embeddings=encoder.get_rel_embedding(),
    )[0]
    return position


V2 = {
    "v3": (DeBERTa(36, 12, buckets=8), 12),
    "clipped": (DeBERTa(36, 6, buckets=None, norm_eps=None), 12),
    "separate": (DeBERTa(36, 13, buckets=6, shared=False, norm_eps=1e-3), 12),
    "c2p alone": (DeBERTa(24, 12, buckets=8, p2c=False), 8),
    "p2c alone": (DeBERTa(24, 12, buckets=8, c2p=False, shared=False, norm_eps=None), 8),
}


@functools.cache
def judged(kind: str) -> Any:
    """Settings, parameters, input and output of the oracle, to which the peer was found equal."""
    scheme, d = V2[kind]
    settings = AttentionSettings(H * d, H, scheme)
    encoder = encoder_v2(scheme, d)
    tensors = {**tensors_v2(encoder, scheme, value), **identity(d)}
    x, cotangent = draw(1, B, L, H * d), draw(2, B, L, H * d)
    truth = oracle.layer(settings, tensors, x, mask=MASK, cotangent=cotangent)
    leaf = torch.tensor(x, requires_grad=True)
    out = output(encoder, leaf)
    out.backward(torch.tensor(cotangent))
    passes(compare(truth.output, out.detach().numpy()))
    gradients = {"x": gradient(leaf).numpy(), **tensors_v2(encoder, scheme, gradient)}
    assert gradients.keys() | identity(d).keys() == truth.gradients.keys()
    for name, array in gradients.items():
        passes(compare(truth.gradients[name], array))
    return settings, tensors, x, truth.output


@pytest.mark.parametrize("kind", V2)
def test_deberta_v2_agrees(twin: Any, kind: str) -> None:
    settings, tensors, x, expected = judged(kind)
    passes(compare(expected, twin.layer(settings, tensors)(x, mask=MASK)))


def test_the_paper_s_direction_is_told_apart() -> None:
    scheme, d = V2["p2c alone"]
    encoder = encoder_v2(scheme, d)
    tensors = {**tensors_v2(encoder, scheme, value), **identity(d)}
    # The row of -d is N - 2 - row(d).
    mirrored = np.roll(tensors["position_table"][:, ::-1], -1, axis=1)
    x = draw(1, B, L, H * d)
    settings = AttentionSettings(H * d, H, scheme)
    paper = oracle.layer(settings, {**tensors, "position_table": mirrored}, x, mask=MASK)
    fails(compare(paper.output, output(encoder, torch.tensor(x)).detach().numpy()))


def test_deberta_v1_agrees(twin: Any) -> None:
    d = 12
    scheme = DeBERTa(36, 6, buckets=None, shared=False, key_bias=False, norm_eps=None)
    config = DebertaConfig(
        hidden_size=36,
        num_attention_heads=H,
        num_hidden_layers=1,
        relative_attention=True,
        max_relative_positions=6,
        pos_att_type=["c2p", "p2c"],
    )
    encoder = filled(deberta.DebertaEncoder(config)).eval()
    own = encoder.layer[0].attention.self
    packed = own.in_proj.weight.detach().reshape(H, 3, d, 36).permute(1, 3, 0, 2).numpy()
    tensors = {
        "position_table": encoder.rel_embeddings.weight.detach().flip(0)[None].numpy(),
        "query.kernel": packed[0],
        "key.kernel": packed[1],
        "value.kernel": packed[2],
        "query.bias": own.q_bias.detach().reshape(H, d).numpy(),
        "key.bias": np.zeros((H, d)),
        "value.bias": own.v_bias.detach().reshape(H, d).numpy(),
        **identity(d),
    }
    for side, linear in (("key", own.pos_proj), ("query", own.pos_q_proj)):
        found = by_head(linear, side, value)
        tensors[f"position_{side}_kernel"] = found[f"{side}.kernel"].swapaxes(0, 1)
    tensors["position_query_bias"] = found["query.bias"]
    settings = AttentionSettings(36, H, scheme)
    x = draw(1, B, L, 36)
    truth = oracle.layer(settings, tensors, x, mask=MASK).output
    passes(compare(truth, output(encoder, torch.tensor(x)).detach().numpy()))
    passes(compare(truth, twin.layer(settings, tensors)(x, mask=MASK)))


@pytest.mark.parametrize(
    ("buckets", "max_distance"), [(256, 512), (32, 128), (64, 4096), (8, 12), (6, 9), (4, 4)]
)
def test_deberta_rows_are_those_of_transformers(buckets: int, max_distance: int) -> None:
    distances = np.arange(-4096, 4097)
    theirs = deberta_v2.make_log_bucket_position(
        torch.tensor(-distances), buckets, max_distance
    ).long()
    index = (theirs + buckets).clamp(0, 2 * buckets - 1).numpy()
    ours = deberta_row_map(buckets, max_distance)(distances)
    passes(compare_exact((2 * buckets - 1 - index).astype(np.int32), ours, what="rows"))
    scheme = dataclasses.replace(DeBERTa(1), buckets=buckets, max_distance=max_distance)
    few = np.concatenate([distances[::97], distances[abs(distances) < 140], [-(10**6), 10**6]])
    counted = np.array([row(scheme, int(distance)) for distance in few], np.int32)
    got = deberta_row_map(buckets, max_distance)(few)
    passes(compare_exact(counted, got, what="rows by counting"))
    bucket = deberta_bucket(distances, buckets=buckets, max_distance=max_distance)
    np.testing.assert_array_equal(bucket, -bucket[::-1])


def wavlm_tensors(peer: Any, part: Any) -> Arrays:
    """Its parameters under our names, or their gradients."""
    out = by_head(peer.out_proj, "out", part)
    arrays = {
        "out.kernel": part(peer.out_proj.weight).T.unflatten(0, (H, -1)).numpy(),
        "out.bias": out["out.bias"].reshape(-1),
        "bias_table": part(peer.rel_attn_embed.weight).T.numpy(),
        "gate_kernel": part(peer.gru_rel_pos_linear.weight).T.numpy(),
        "gate_bias": part(peer.gru_rel_pos_linear.bias).numpy(),
        "gate_scale": part(peer.gru_rel_pos_const).flatten().numpy(),
    }
    for side, letter in (("query", "q"), ("key", "k"), ("value", "v")):
        arrays |= by_head(getattr(peer, f"{letter}_proj"), side, part)
    return arrays


@functools.cache
def judged_wavlm() -> Any:
    """Settings, parameters, input and output of the oracle, to which the peer was found equal."""
    settings = AttentionSettings(12, H, GatedT5(10, 13))
    peer = filled(wavlm.WavLMAttention(12, H, num_buckets=10, max_distance=13))
    tensors = wavlm_tensors(peer, value)
    x, cotangent = draw(1, B, L, 12), draw(2, B, L, 12)
    truth = oracle.layer(settings, tensors, x, mask=MASK, cotangent=cotangent)
    leaf = torch.tensor(x, requires_grad=True)
    with warnings.catch_warnings():
        # It hands torch a mask of padding of one type and a bias of another.
        warnings.simplefilter("ignore", UserWarning)
        out = peer(leaf, attention_mask=torch.tensor(MASK[:, 0, 0]).long())[0]
    out.backward(torch.tensor(cotangent))
    passes(compare(truth.output, out.detach().numpy()))
    gradients = {"x": gradient(leaf).numpy(), **wavlm_tensors(peer, gradient)}
    assert gradients.keys() == truth.gradients.keys()
    for name, array in gradients.items():
        passes(compare(truth.gradients[name], array))
    return settings, tensors, x, truth.output


def test_wavlm_agrees(twin: Any) -> None:
    settings, tensors, x, expected = judged_wavlm()
    passes(compare(expected, twin.layer(settings, tensors)(x, mask=MASK)))


def test_wavlm_buckets_alike() -> None:
    distances = torch.arange(-2000, 2001)
    theirs = wavlm.WavLMAttention(12, H)._relative_positions_bucket(distances).numpy()
    ours = t5_bucket(distances.numpy(), num_buckets=320, max_distance=800, bidirectional=True)
    passes(compare_exact(theirs.astype(np.int32), ours, what="buckets"))


@pytest.mark.parametrize(("buckets", "max_distance", "wrong"), [(32, 128, 3), (320, 800, 146)])
def test_logarithms_in_half_precision_take_other_buckets(
    buckets: int, max_distance: int, wrong: int
) -> None:
    n = torch.arange(1, 2001)
    per_side, exact = buckets // 2, buckets // 4
    ratio = torch.log(n.to(torch.bfloat16) / exact) / math.log(max_distance / exact)
    steps = (exact + (ratio * (per_side - exact)).long()).clamp(max=per_side - 1)
    half = torch.where(n < exact, n, steps).numpy()
    ours = t5_bucket(-n.numpy(), num_buckets=buckets, max_distance=max_distance, bidirectional=True)
    assert (half != ours).sum() == wrong
    if buckets == 32:
        assert n[half != ours].tolist() == [16, 32, 90]


@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (320, 800)])
def test_logarithms_in_float32_take_ours(buckets: int, max_distance: int) -> None:
    # Also those of JAX compiled, and of T5's own port to Flax, which adds a little first.
    n = np.arange(1, 5000, dtype=np.int32)
    per_side, exact = buckets // 2, buckets // 4
    ours = t5_bucket(-n, num_buckets=buckets, max_distance=max_distance, bidirectional=True)
    span = math.log(max_distance / exact)

    def bucketed(logarithm: Any, epsilon: float = 0.0) -> Any:
        ratio = np.asarray(logarithm(n.astype(np.float32) / np.float32(exact) + epsilon))
        steps = (ratio / np.float32(span) * np.float32(per_side - exact)).astype(np.int32)
        return np.where(n < exact, n, np.minimum(exact + steps, per_side - 1)).astype(np.int32)

    near = n <= 2000
    tried = {
        "numpy": bucketed(np.log),
        "JAX": bucketed(jax.jit(jnp.log)),
        "Flax": bucketed(np.log, np.float32(np.finfo(np.float32).eps)),
    }
    for name, found in tried.items():
        passes(compare_exact(ours, found, what=name))
    by_torch = bucketed(lambda x: torch.log(torch.tensor(x)).numpy())
    passes(compare_exact(ours[near], by_torch[near], what="torch"))


def test_inkling_adds_the_same(twin: Any) -> None:
    scheme, d, Lq = LowRankBank(rank=5, extent=4), 8, 9
    peer = filled(inkling.InklingRelativeLogits(5, 4))
    bank = peer.proj.detach().T.flip(0)[None].numpy()
    q, k, v = draw(1, B, H, Lq, d), draw(2, B, H, L, d), draw(3, B, H, L, d)
    features = draw(4, B, H, Lq, 5)
    states = torch.tensor(features).transpose(1, 2)
    bias = peer(states, torch.arange(L - Lq, L), torch.arange(L)).detach()
    assert (bias == 0).any()
    for b, h in np.ndindex(B, H):
        truth = oracle.relative_scores(
            scheme, {"bank": bank[0]}, q[b, h], k[b, h], query_features=features[b, h]
        )
        passes(compare(truth.output, bias[b, h].numpy()))
    # Its softmax is in float32 whatever it is given, so the output can only be judged there.
    options: dict[str, Any] = {"causal": True, "query_features": features, "scale": 1 / d}
    single = Precision.of("float32")
    out = oracle.attention(scheme, {"bank": bank}, q, k, v, **options, precision=single).output
    mask = torch.full((Lq, L), -torch.inf).triu(L - Lq + 1).double()
    peer.num_key_value_groups = 1
    theirs = inkling.eager_attention_forward(
        peer, *map(torch.tensor, (q, k, v)), mask, 1 / d, position_bias=bias
    )[0]
    passes(compare(out, theirs.transpose(1, 2).numpy()))
    exact = oracle.attention(scheme, {"bank": bank}, q, k, v, **options).output
    if twin.name == "jax":
        options["query_features"] = features.swapaxes(1, 2)
    passes(compare(exact, twin.attention(scheme, {"bank": bank}, q, k, v, **options)))
