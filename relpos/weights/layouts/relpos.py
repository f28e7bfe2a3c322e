"""Our own names: torch state dicts, flax.nnx states and flax.linen variables.

    relpos-torch    encoder.0.query.weight [H*d, D]    what relpos_torch.RelativeAttention has
    relpos-nnx      encoder.0.query.kernel [D, H, d]   flat names of an nnx.Param state, with dots
    relpos-linen    params/encoder/0/query/kernel      flat names of linen variables, with slashes

A scheme's parameters have the same name and shape everywhere, so they need no entry of their own.
"""

from __future__ import annotations

import numpy as np

from relpos.schemes import RoPE
from relpos.settings import AttentionSettings
from relpos.weights.layout import Drop, Entry, Layout
from relpos.weights.neutral import Array
from relpos.weights.steps import Split, Transpose

__all__ = ["LINEN", "NNX", "TORCH"]

_HEADS = {"query": "heads", "key": "kv_heads", "value": "kv_heads"}
_PROJECTIONS = ("query", "key", "value", "out")
_SCHEME = "a table does not tell what its rows mean: the scheme and its settings must be given"


def _frequencies_fault(array: Array, settings: AttentionSettings) -> str | None:
    """An `inv_freq` buffer must repeat the layer's own frequencies, to the precision it has."""
    if not isinstance(settings.scheme, RoPE):
        return f"rotary frequencies in a layer with {settings.scheme.name}"
    own = np.array(settings.scheme.frequencies(settings.width))
    # Buffers are often computed in float32 and stored in less; 1 / 128 is bfloat16's spacing.
    tolerance = 2.0**-7 if array.dtype.itemsize < 4 else 2.0**-18
    if array.shape != own.shape:
        return f"{list(array.shape)} frequencies for {list(own.shape)}"
    if not np.allclose(array.astype(np.float64), own, rtol=tolerance, atol=0.0):
        return f"other frequencies than those of {settings.scheme}"
    return None


TORCH = Layout(
    name="relpos-torch",
    description="state dict of relpos_torch.RelativeAttention, or of a model that holds several",
    entries=(
        *(
            Entry(
                f"{{layer}}.{name}.weight",
                f"{name}.kernel",
                (Transpose((1, 0)), Split(1, (heads, "head_dim"))),
            )
            for name, heads in _HEADS.items()
        ),
        *(
            Entry(f"{{layer}}.{name}.bias", f"{name}.bias", (Split(0, (heads, "head_dim")),))
            for name, heads in _HEADS.items()
        ),
        Entry(
            "{layer}.out.weight",
            "out.kernel",
            (Transpose((1, 0)), Split(0, ("heads", "head_dim"))),
        ),
        Entry("{layer}.out.bias", "out.bias"),
        Entry("{layer}.{parameter}", "{parameter}"),
    ),
    drops=(
        Drop(
            "{layer}.inv_freq",
            "a buffer that older rotary layers store; the settings say the same",
            check=_frequencies_fault,
        ),
    ),
    arguments={"num_heads": "weights [H*d, D] do not tell H from d", "scheme": _SCHEME},
)


def _flax(name: str, description: str, lead: str, separator: str) -> Layout:
    names = [f"{p}.{part}" for p in _PROJECTIONS for part in ("kernel", "bias")]
    return Layout(
        name=name,
        description=description,
        entries=tuple(
            Entry(lead + "{layer}" + separator + target.replace(".", separator), target)
            for target in (*names, "{parameter}")
        ),
        arguments={"scheme": _SCHEME},
        separator=separator,
    )


NNX = _flax(
    "relpos-nnx",
    "nnx.Param state of relpos_jax.nnx.RelativeAttention, flat, names joined by dots",
    lead="",
    separator=".",
)

LINEN = _flax(
    "relpos-linen",
    "variables of relpos_jax.linen.RelativeAttention, flat, names joined by slashes",
    lead="params/",
    separator="/",
)
