"""What people write by hand or install for PyTorch, at a size: restatements and real modules.

A module comes with how it is called on x. None of them is tuned; none is made slower.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from relpos.bench.contender import Size
from relpos.distance import t5_bucket
from relpos.schemes import ALiBi

__all__ = [
    "by_hand",
    "flex_alibi",
    "gathered",
    "materialised_alibi",
    "materialised_t5",
    "plain_layer",
    "rotary",
    "transformers_conformer",
    "transformers_deberta",
    "transformers_t5",
    "transformers_wav2vec2_bert",
    "x_transformers_alibi",
]

#: A module and how it is called on x [B, L, D].
Layer = tuple[nn.Module, Callable[[Tensor], Tensor]]


def gathered(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    """q E^T for every row of the table, then a gather of those that each pair reads."""
    L, d = q.shape[-2:]
    place = torch.arange(L, device=q.device)
    row = place[None, :] - place[:, None] + L - 1
    by_row = q @ table.mT
    scores = q @ k.mT + by_row.gather(-1, row.expand(*by_row.shape[:-1], L))
    return (scores * d**-0.5).softmax(-1) @ v


def materialised_t5(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    """The bias [H, L, L] made by indexing, and handed over as a mask."""
    L = q.shape[-2]
    place = torch.arange(L, device=q.device)
    bias = table[:, _buckets(L, q.device)[place[None, :] - place[:, None] + L - 1]]
    return scaled_dot_product_attention(q, k, v, attn_mask=bias[None])


def materialised_alibi(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Slopes times distances [H, L, L], handed over as a mask."""
    place = torch.arange(q.shape[-2], device=q.device)
    distance = (place[None, :] - place[:, None]).abs()
    bias = -_slopes(q.shape[1], q)[:, None, None] * distance
    return scaled_dot_product_attention(q, k, v, attn_mask=bias[None].to(q.dtype))


def flex_alibi(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """FlexAttention with the bias as a function of the score's place."""
    from torch.nn.attention.flex_attention import flex_attention

    slopes = _slopes(q.shape[1], q)

    def added(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score - slopes[h] * (j - i).abs()

    return flex_attention(q, k, v, score_mod=added)


def rotary(size: Size) -> Callable[[Tensor], Tensor]:
    """What rotary-embedding-torch does to queries and keys."""
    from rotary_embedding_torch import RotaryEmbedding

    embedding = RotaryEmbedding(dim=size.d).to(size.device)
    return embedding.rotate_queries_or_keys


class _Projections(nn.Module):
    """x to queries, keys and values [B, H, L, d], and the heads back to x."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.H, D = size.H, size.H * size.d
        self.query, self.key, self.value, self.out = (nn.Linear(D, D) for _ in range(4))

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (
            projection(x).unflatten(-1, (self.H, -1)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        return q, k, v

    def joined(self, heads: Tensor) -> Tensor:
        joined: Tensor = self.out(heads.transpose(1, 2).flatten(-2))
        return joined


def plain_layer(size: Size) -> Layer:
    """Projections around plain attention, without positions."""
    layer = _Projections(size)
    return layer, lambda x: layer.joined(scaled_dot_product_attention(*layer.heads(x)))


def by_hand(size: Size) -> Layer:
    """A layer as many are written: a vector gathered for every pair, [L, L, d]."""
    layer = _Projections(size)
    table = nn.Parameter(0.02 * torch.randn(2 * size.L - 1, size.d))
    layer.register_parameter("table", table)

    def call(x: Tensor) -> Tensor:
        q, k, v = layer.heads(x)
        place = torch.arange(x.shape[1], device=x.device)
        vectors = table[place[None, :] - place[:, None] + size.L - 1]
        scores = q @ k.mT + torch.einsum("bhid,ijd->bhij", q, vectors)
        return layer.joined((scores * size.d**-0.5).softmax(-1) @ v)

    return layer, call


def transformers_t5(size: Size) -> Layer:
    """The attention of T5's encoder, which makes its bias anew in every call."""
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(
        d_model=size.H * size.d, d_kv=size.d, num_heads=size.H, attn_implementation="sdpa"
    )
    layer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    mask = torch.zeros(1, 1, size.L, size.L, dtype=getattr(torch, size.dtype), device=size.device)
    return layer, lambda x: layer(x, mask=mask)[0]


def transformers_wav2vec2_bert(size: Size) -> Layer:
    """The attention of w2v-BERT 2.0: a vector gathered for every pair."""
    from transformers import Wav2Vec2BertConfig
    from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

    config = Wav2Vec2BertConfig(
        hidden_size=size.H * size.d,
        num_attention_heads=size.H,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=64,
        right_max_position_embeddings=8,
        attn_implementation="eager",
    )
    layer = Wav2Vec2BertSelfAttention(config)
    return layer, lambda x: layer(x)[0]


def transformers_conformer(size: Size) -> Layer:
    """The attention of Wav2Vec2-Conformer, its position embedding included."""
    from transformers import Wav2Vec2ConformerConfig
    from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as conformer

    config = Wav2Vec2ConformerConfig(
        hidden_size=size.H * size.d,
        num_attention_heads=size.H,
        position_embeddings_type="relative",
        max_source_positions=size.L,
        attn_implementation="eager",
    )
    encoding = conformer.Wav2Vec2ConformerRelPositionalEmbedding(config)
    layer = conformer.Wav2Vec2ConformerSelfAttention(config)
    return layer, lambda x: layer(x, relative_position_embeddings=encoding(x))[0]


def transformers_deberta(size: Size) -> Layer:
    """The attention of DeBERTa-v2 inside its encoder, which holds the table."""
    from transformers import DebertaV2Config
    from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2Encoder

    config = DebertaV2Config(
        hidden_size=size.H * size.d,
        num_attention_heads=size.H,
        num_hidden_layers=1,
        relative_attention=True,
        position_buckets=256,
        max_relative_positions=512,
        pos_att_type=["c2p", "p2c"],
        share_att_key=True,
        norm_rel_ebd="layer_norm",
        attention_probs_dropout_prob=0.0,
    )
    encoder = DebertaV2Encoder(config)
    mask = torch.ones(size.B, 1, size.L, size.L, dtype=torch.bool, device=size.device)

    def call(x: Tensor) -> Tensor:
        output: Tensor = encoder.layer[0].attention.self(
            x,
            mask,
            relative_pos=encoder.get_rel_pos(x),
            rel_embeddings=encoder.get_rel_embedding(),
        )[0]
        return output

    return encoder, call


def x_transformers_alibi(size: Size) -> Layer:
    """x-transformers' attention with its ALiBi."""
    from x_transformers.x_transformers import AlibiPositionalBias, Attention

    layer = Attention(size.H * size.d, dim_head=size.d, heads=size.H, flash=False)
    layer.positions = AlibiPositionalBias(size.H)
    return layer, lambda x: layer(x, rel_pos=layer.positions)[0]


@functools.cache
def _buckets(L: int, device: torch.device) -> Tensor:
    """T5's bucket of every distance from 1 - L to L - 1: an index that people keep."""
    distances = np.arange(1 - L, L)
    rows = t5_bucket(distances, num_buckets=32, max_distance=128, bidirectional=True)
    return torch.as_tensor(rows, device=device)


def _slopes(H: int, like: Tensor) -> Tensor:
    return torch.tensor(ALiBi().slopes(H), dtype=like.dtype, device=like.device)
