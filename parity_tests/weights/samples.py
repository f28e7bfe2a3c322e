"""Settings and weights to test with: every scheme, odd sizes, and arrays of arbitrary bits."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from relpos import T5, AttentionSettings, NoPosition, RoPE, Scheme, Shaw, Windowed
from relpos.weights import Weights
from relpos.weights.neutral import FLOAT_DTYPES, Array, joined_path

SCHEMES: tuple[Scheme, ...] = (
    NoPosition(),
    Shaw(left=3, right=1),
    Shaw(left=2, right=4, values=False, per_head=True),
    Windowed(left=2, right=2),
    Windowed(left=1, right=4, per_head=True),
    T5(num_buckets=10, max_distance=17),
    RoPE("half"),
    RoPE("interleaved", rotary_dim=2, base=500.0),
)


def settings_of(scheme: Scheme, **changes: object) -> AttentionSettings:
    """A layer with different primes for H / G, G and D, and heads of its own width."""
    sizes = {"embed_dim": 7, "num_heads": 6, "num_kv_heads": 2, "head_dim": 4}
    return AttentionSettings(scheme=scheme, **{**sizes, **changes})  # type: ignore[arg-type]


def random_bits(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """An array whose every bit is random: NaNs with payloads, infinities, -0.0, subnormals."""
    kind = FLOAT_DTYPES[dtype]
    count = math.prod(shape) * kind.itemsize
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8).view(kind).reshape(shape)


def random_weights(
    layers: AttentionSettings | dict[str, AttentionSettings], dtype: str = "float32", seed: int = 0
) -> Weights:
    """Weights of arbitrary bits."""
    layers = {"": layers} if isinstance(layers, AttentionSettings) else layers
    return Weights(
        layers,
        {
            joined_path(path, parameter.name): random_bits(parameter.shape, dtype, seed + n)
            for path, settings in layers.items()
            for n, parameter in enumerate(settings.parameters())
        },
    )


def bits(arrays: object) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Everything about named arrays that a conversion must keep."""
    return {n: (a.dtype.name, a.shape, a.tobytes()) for n, a in dict(arrays).items()}  # type: ignore[call-overload]


@st.composite
def any_settings(draw: st.DrawFn) -> AttentionSettings:
    """Settings of any layer."""
    kv_heads = draw(st.integers(1, 3))
    heads = kv_heads * draw(st.integers(1, 3))
    width = 2 * draw(st.integers(1, 3))
    free = draw(st.booleans())
    return AttentionSettings(
        embed_dim=draw(st.integers(1, 9)) if free else heads * width,
        num_heads=heads,
        scheme=draw(st.sampled_from(SCHEMES)),
        num_kv_heads=None if kv_heads == heads else kv_heads,
        head_dim=width if free else None,
        bias=draw(st.booleans()),
        causal=draw(st.booleans()),
        dropout=draw(st.sampled_from([0.0, 0.1])),
        scale=draw(st.sampled_from([None, 0.3, -2.0])),
    )


dtypes = st.sampled_from([*FLOAT_DTYPES])
