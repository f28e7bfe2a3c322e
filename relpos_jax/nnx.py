"""The layer for flax.nnx: projections around relative attention."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from relpos.checks import check_call, check_input, check_mask
from relpos.schemes import Parameter, Scheme
from relpos.schemes.base import Projection
from relpos.settings import AttentionSettings
from relpos_jax.cache import KVCache
from relpos_jax.functional import attention
from relpos_jax.initialise import initializer
from relpos_jax.kernels import choose_kernel
from relpos_jax.projection import heads_first, read

__all__ = ["RelativeAttention"]


class RelativeAttention(nnx.Module):
    """Multi-head attention with relative positions.

        q, k, v = x W_q + b_q, y W_k + b_k, y W_v + b_v          y = x in self-attention
        out     = concat_h(attention(q, k, v)) W_o + b_o

    Parameters: `query.kernel` [D, H, d], `key.kernel` and `value.kernel` [D, G, d], `out.kernel`
    [H, d, D], their biases, and the scheme's own, such as `key_table`. Each carries the logical
    names of its axes as `out_sharding`. Inputs are batch first, channels last.

    Args:
        embed_dim: Width of the inputs and outputs, D.
        num_heads: Query heads, H.
        scheme: The relative position scheme, for example `relpos.Shaw(16, 16)`.
        num_kv_heads: Key and value heads, G, a divisor of H; None means H.
        head_dim: Width of one head, d; None means D / H.
        bias: Add a learned bias after each projection.
        causal: No query attends to a key at a later position.
        dropout: Probability of dropping an attention weight unless `deterministic`.
        scale: Factor on <q, k>; None takes the scheme's own, usually 1 / sqrt(d).
        implementation: The kernel: "auto", "dense" or "blockwise", see `attention`.
        dtype: Dtype of the computation; None takes the promoted dtype of inputs and parameters.
        param_dtype: Dtype of the parameters.
        rngs: Random streams: `params` for the parameters, `dropout` if there is dropout.

    Raises:
        SettingError: A setting is impossible, alone or beside another.

    Example:
        >>> from relpos import Shaw
        >>> layer = RelativeAttention(64, 4, Shaw(left=16, right=16), rngs=nnx.Rngs(0))
        >>> layer(jnp.ones((2, 100, 64))).shape
        (2, 100, 64)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        scheme: Scheme,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        causal: bool = False,
        dropout: float = 0.0,
        scale: float | None = None,
        implementation: str = "auto",
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        self.settings = AttentionSettings(
            embed_dim, num_heads, scheme, num_kv_heads, head_dim, bias, causal, dropout, scale
        )
        choose_kernel(implementation, scheme)
        self.implementation = implementation
        self.dtype, self.param_dtype = dtype, param_dtype
        self.deterministic = False
        table = {parameter.name: parameter for parameter in self.settings.parameters()}
        width = self.settings.width

        def projection(name: str, heads: int) -> nnx.LinearGeneral:
            inner = (heads, width)
            kernel = table[f"{name}.kernel"]
            return nnx.LinearGeneral(
                inner if name == "out" else embed_dim,
                embed_dim if name == "out" else inner,
                axis=(-2, -1) if name == "out" else -1,
                use_bias=bias,
                dtype=dtype,
                param_dtype=param_dtype,
                kernel_init=initializer(kernel.init),
                kernel_metadata=_axes(kernel),
                bias_metadata=_axes(table[f"{name}.bias"]) if bias else {},
                rngs=rngs,
            )

        self.query = projection("query", num_heads)
        self.key = projection("key", self.settings.kv_heads)
        self.value = projection("value", self.settings.kv_heads)
        self.out = projection("out", num_heads)
        for parameter in table.values():
            if "." in parameter.name:  # held by a projection
                continue
            value = initializer(parameter.init)(rngs.params(), parameter.shape, param_dtype)
            setattr(self, parameter.name, nnx.Param(value, **_axes(parameter)))
        self.rngs = rngs.dropout.fork() if dropout > 0.0 else None

    @classmethod
    def from_settings(
        cls,
        settings: AttentionSettings,
        *,
        implementation: str = "auto",
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> RelativeAttention:
        """A fresh layer with these settings."""
        return cls(
            settings.embed_dim,
            settings.num_heads,
            settings.scheme,
            num_kv_heads=settings.num_kv_heads,
            head_dim=settings.head_dim,
            bias=settings.bias,
            causal=settings.causal,
            dropout=settings.dropout,
            scale=settings.scale,
            implementation=implementation,
            dtype=dtype,
            param_dtype=param_dtype,
            rngs=rngs,
        )

    def init_cache(self, batch: int, capacity: int, *, dtype: DTypeLike | None = None) -> KVCache:
        """An empty cache for `batch` rows of up to `capacity` tokens.

        Its dtype is the layer's `dtype`, or else its `param_dtype`, unless another is named.
        """
        if dtype is None:
            dtype = self.param_dtype if self.dtype is None else self.dtype
        settings = self.settings
        read = settings.scheme.key_projection
        return KVCache.empty(
            batch,
            capacity,
            settings.kv_heads,
            settings.width,
            dtype=dtype,
            features=None if read is None else (settings.num_heads, read.width),
        )

    def __call__(
        self,
        x: Float[Array, "B L D"],
        key_value: Float[Array, "B Lk D"] | None = None,
        *,
        mask: Bool[Array, "..."] | None = None,
        positions: Int[Array, "..."] | None = None,
        key_positions: Int[Array, "..."] | None = None,
        cache: KVCache | None = None,
        lengths: Int[Array, " rows"] | None = None,
        deterministic: bool | None = None,
    ) -> Float[Array, "B L D"] | tuple[Float[Array, "B L D"], KVCache]:
        """Attend.

        Args:
            x: Input of the queries, and of keys and values unless `key_value` is given.
            key_value: Input of keys and values in cross-attention.
            mask: True = may attend; four axes that broadcast to [B, H, L, Lk]. Padding [B, Lk] is
                `mask[:, None, None, :]`. With a cache, Lk is its capacity.
            positions: Whole positions of x, [L] or [B, L]; the default is 0 .. L - 1. For a scheme
                with A axes of positions also [B or 1, L, A].
            key_positions: Whole positions of `key_value`. Cross-attention with any scheme but
                `NoPosition` needs both: two sequences have no common origin that could be guessed.
            cache: Tokens seen before; x then holds the ones that follow, one or several. Decoding
                equals the full run if the layer is causal; otherwise a token sees what was cached
                and all that came in with it.
            lengths: With a cache: how many tokens of each row of x are real [B]; None means all.
            deterministic: Drop no weights; None takes the attribute that `train()` and `eval()`
                set.

        Returns:
            The output; with a cache, a pair of output and the cache that includes x.

        Raises:
            ShapeError: Shapes, dtypes or arguments do not fit.
            DistanceError: A distance lies beyond a table that may not clip.
        """
        settings = self.settings
        deterministic = self.deterministic if deterministic is None else deterministic
        check_input("x", x.shape, settings.embed_dim)
        if key_value is not None:
            check_input("key_value", key_value.shape, settings.embed_dim)
        check_call(
            settings.scheme,
            cross=key_value is not None,
            positions=positions is not None,
            key_positions=key_positions is not None,
            cache=cache is not None,
            lengths=lengths is not None,
        )
        source = x if key_value is None else key_value
        q, k, v = self.query(x), self.key(source), self.value(source)
        query_features = self._read(settings.scheme.query_projection, x)
        key_features = self._read(settings.scheme.key_projection, source)
        if key_value is None:
            key_positions = positions
        if cache is not None:
            appended = cache.append(k, v, lengths, key_features)
            cache, positions, key_positions = appended[:3]
            if mask is not None:
                check_mask(mask.shape, str(mask.dtype), cache.sizes(q))
                mask = mask & appended.mask
            else:
                mask = appended.mask
            k, v = cache.key.astype(q.dtype), cache.value.astype(q.dtype)
            if cache.features is not None and settings.scheme.key_projection is not None:
                empty = settings.scheme.key_projection.empty
                filled = appended.filled[:, :, None, None]
                key_features = jnp.where(filled, cache.features.astype(q.dtype), empty)
        tables = settings.scheme.parameters(settings.num_heads, settings.width)
        attended = attention(
            q,
            k,
            v,
            settings.scheme,
            {table.name: self._parameter_of(table) for table in tables},
            mask=mask,
            causal=settings.causal,
            query_positions=positions,
            key_positions=key_positions,
            query_features=query_features,
            key_features=key_features,
            scale=settings.scale,
            dropout=settings.dropout,
            dropout_key=None if deterministic or self.rngs is None else self.rngs(),
            implementation=self.implementation,
        )
        out = self.out(attended)
        return out if cache is None else (out, cache)

    def _read(
        self, projection: Projection | None, x: Float[Array, "B L D"]
    ) -> Float[Array, "B L H e"] | None:
        if projection is None:
            return None
        kernel = getattr(self, f"{projection.name}_kernel")[...]
        bias = getattr(self, f"{projection.name}_bias")[...] if projection.bias else None
        return read(projection, x, kernel, bias, self.settings.num_heads, self.dtype)

    def _parameter_of(self, parameter: Parameter) -> Array:
        if parameter.tied is None:
            own: Array = getattr(self, parameter.name)[...]
            return own
        name, _, part = parameter.tied.partition(".")
        if part == "bias" and not self.settings.bias:
            return jnp.zeros(parameter.shape, self.param_dtype)
        return heads_first(getattr(getattr(self, name), part)[...], self.settings.num_heads)


def _axes(parameter: Parameter) -> dict[str, Any]:
    """Logical axis names as nnx metadata; no mesh is needed to build the layer."""
    return {"out_sharding": parameter.axes, "eager_sharding": False}
