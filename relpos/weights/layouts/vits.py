"""VITS, Glow-TTS and Piper voices: convolutions of width 1 and two tables in a window.

    vits                attn_layers.0.conv_q.weight [D, D, 1]        prefix enc_p.encoder.
    vits-transformers   layers.0.attention.q_proj.weight [D, D]     prefix text_encoder.encoder.

The original names survive in ONNX files, whose initialisers are read the same way. The tables
`emb_rel_k` and `emb_rel_v` are [1 or H, 2w + 1, d], rows ascending in j - i, the vectors outside
the window are zero, and the position term is scaled with the content: `Windowed(left=w, right=w)`.
"""

from __future__ import annotations

from collections.abc import Mapping

from relpos.errors import WeightsError
from relpos.schemes import NoPosition, Scheme, Windowed
from relpos.weights.layout import Drop, Entry, Layout
from relpos.weights.steps import Split, Squeeze, Step, Transpose

__all__ = ["VITS", "VITS_TRANSFORMERS"]

_TABLES = ("key_table", "value_table")


def _windowed(shapes: Mapping[str, tuple[int, ...]]) -> Scheme:
    """The tables tell the window; a layer without tables has no positions (VITS allows it)."""
    tables = {name: shapes[name] for name in _TABLES if name in shapes}
    if not tables:
        return NoPosition()
    shape, *others = tables.values()
    if len(shape) != 3 or shape[1] % 2 == 0 or any(other != shape for other in others):
        raise WeightsError(
            "the tables of VITS have one row per distance from -w to w, the same for both",
            got=", ".join(f"{name} {list(table)}" for name, table in tables.items()),
            expected="[1 or H, 2w + 1, d]",
        )
    reach = shape[1] // 2
    return Windowed(left=reach, right=reach, per_head=shape[0] > 1)


def _layout(
    name: str,
    description: str,
    layer: str,
    projections: tuple[str, str, str, str],
    squeeze: tuple[Step, ...],
    beside: tuple[str, ...],
) -> Layout:
    turn = (*squeeze, Transpose((1, 0)))
    heads = Split(0, ("heads", "head_dim"))
    *inputs, out = projections
    entries = [Entry(f"{layer}.{out}.weight", "out.kernel", (*turn, heads))]
    entries.append(Entry(f"{layer}.{out}.bias", "out.bias"))
    for ours, theirs in zip(("query", "key", "value"), inputs, strict=True):
        # VITS has as many key heads as query heads, so G = H names the same axis.
        axis = "heads" if ours == "query" else "kv_heads"
        into = (axis, "head_dim")
        entries.append(Entry(f"{layer}.{theirs}.weight", f"{ours}.kernel", (*turn, Split(1, into))))
        entries.append(Entry(f"{layer}.{theirs}.bias", f"{ours}.bias", (Split(0, into),)))
    entries.append(Entry(f"{layer}.emb_rel_k", "key_table"))
    entries.append(Entry(f"{layer}.emb_rel_v", "value_table"))
    return Layout(
        name=name,
        description=description,
        entries=tuple(entries),
        drops=tuple(Drop(source, "stands beside the attention, not in it") for source in beside),
        arguments={"num_heads": "weights of D by D numbers do not tell the number of heads"},
        numbered=True,
        read_scheme=_windowed,
    )


VITS = _layout(
    "vits",
    "VITS, Glow-TTS and Piper text encoders, torch state dicts and ONNX initialisers",
    layer="attn_layers.{layer}",
    projections=("conv_q", "conv_k", "conv_v", "conv_o"),
    squeeze=(Squeeze(2),),
    beside=("norm_layers_1.{layer}.*", "norm_layers_2.{layer}.*", "ffn_layers.{layer}.*"),
)

VITS_TRANSFORMERS = _layout(
    "vits-transformers",
    "VitsModel of transformers, its text encoder",
    layer="layers.{layer}.attention",
    projections=("q_proj", "k_proj", "v_proj", "out_proj"),
    squeeze=(),
    beside=(
        "layers.{layer}.layer_norm.*",
        "layers.{layer}.feed_forward.*",
        "layers.{layer}.final_layer_norm.*",
    ),
)
