"""The layer for flax.linen: projections around relative attention."""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp
from flax.linen.module import merge_param
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


class RelativeAttention(nn.Module):
    """Multi-head attention with relative positions.

        q, k, v = x W_q + b_q, y W_k + b_k, y W_v + b_v          y = x in self-attention
        out     = concat_h(attention(q, k, v)) W_o + b_o

    Parameters: `query.kernel` [D, H, d], `key.kernel` and `value.kernel` [D, G, d], `out.kernel`
    [H, d, D], their biases, and the scheme's own, such as `key_table`. Each is boxed with the
    logical names of its axes (`flax.linen.with_logical_partitioning`); `flax.linen.unbox` gives the
    plain arrays. Inputs are batch first, channels last.

    Attributes:
        embed_dim: Width of the inputs and outputs, D.
        num_heads: Query heads, H.
        scheme: The relative position scheme, for example `relpos.Shaw(16, 16)`.
        num_kv_heads: Key and value heads, G, a divisor of H; None means H.
        head_dim: Width of one head, d; None means D / H.
        bias: Add a learned bias after each projection.
        causal: No query attends to a key at a later position.
        dropout: Probability of dropping an attention weight unless `deterministic`, drawn from the
            `dropout` random stream.
        scale: Factor on <q, k>; None takes the scheme's own, usually 1 / sqrt(d).
        implementation: The kernel: "auto", "dense" or "blockwise", see `attention`.
        dtype: Dtype of the computation; None takes the promoted dtype of inputs and parameters.
        param_dtype: Dtype of the parameters.
        deterministic: Drop no weights. With dropout it is given here or in the call.

    Raises:
        SettingError: A setting is impossible, alone or beside another.

    Example:
        >>> import jax
        >>> from relpos import Shaw
        >>> layer = RelativeAttention(64, 4, Shaw(left=16, right=16))
        >>> x = jnp.ones((2, 100, 64))
        >>> layer.apply(layer.init(jax.random.key(0), x), x).shape
        (2, 100, 64)
    """

    embed_dim: int
    num_heads: int
    scheme: Scheme
    num_kv_heads: int | None = None
    head_dim: int | None = None
    bias: bool = True
    causal: bool = False
    dropout: float = 0.0
    scale: float | None = None
    implementation: str = "auto"
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    deterministic: bool | None = None

    def __post_init__(self) -> None:
        """Refuse impossible settings at once, not at the first call."""
        choose_kernel(self.implementation, self.settings.scheme)
        super().__post_init__()

    @property
    def settings(self) -> AttentionSettings:
        """The layer's settings, shared with the other two layers."""
        return AttentionSettings(
            self.embed_dim,
            self.num_heads,
            self.scheme,
            self.num_kv_heads,
            self.head_dim,
            self.bias,
            self.causal,
            self.dropout,
            self.scale,
        )

    @classmethod
    def from_settings(
        cls,
        settings: AttentionSettings,
        *,
        implementation: str = "auto",
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
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

    @nn.compact
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
            deterministic: Drop no weights; given here or as the attribute if there is dropout.

        Returns:
            The output; with a cache, a pair of output and the cache that includes x.

        Raises:
            ShapeError: Shapes, dtypes or arguments do not fit.
            DistanceError: A distance lies beyond a table that may not clip.
        """
        settings = self.settings
        if settings.dropout > 0.0:
            deterministic = merge_param("deterministic", self.deterministic, deterministic)
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
        table = {parameter.name: parameter for parameter in settings.parameters()}

        def projection(name: str, heads: int) -> nn.DenseGeneral:
            return nn.DenseGeneral(
                settings.embed_dim if name == "out" else (heads, settings.width),
                axis=(-2, -1) if name == "out" else -1,
                use_bias=settings.bias,
                dtype=self.dtype,
                param_dtype=self.param_dtype,
                kernel_init=_boxed(table[f"{name}.kernel"]),
                bias_init=_boxed(table[f"{name}.bias"]) if settings.bias else nn.initializers.zeros,
                name=name,
            )

        source = x if key_value is None else key_value
        q = projection("query", settings.num_heads)(x)
        k = projection("key", settings.kv_heads)(source)
        v = projection("value", settings.kv_heads)(source)
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
        scheme_parameters = settings.scheme.parameters(settings.num_heads, settings.width)
        params = {parameter.name: self._parameter_of(parameter) for parameter in scheme_parameters}
        drops = settings.dropout > 0.0 and not deterministic
        attended = attention(
            q,
            k,
            v,
            settings.scheme,
            params,
            mask=mask,
            causal=settings.causal,
            query_positions=positions,
            key_positions=key_positions,
            query_features=query_features,
            key_features=key_features,
            scale=settings.scale,
            dropout=settings.dropout,
            dropout_key=self.make_rng("dropout") if drops else None,
            implementation=self.implementation,
        )
        out = projection("out", settings.num_heads)(attended)
        return out if cache is None else (out, cache)

    def _read(
        self, projection: Projection | None, x: Float[Array, "B L D"]
    ) -> Float[Array, "B L H e"] | None:
        if projection is None:
            return None
        table = projection.parameters(self.embed_dim, self.num_heads)
        kernel, *bias = (self._parameter_of(parameter) for parameter in table)
        return read(projection, x, kernel, bias[0] if bias else None, self.num_heads, self.dtype)

    def _parameter_of(self, parameter: Parameter) -> Array:
        if parameter.tied is None:
            own: Array = self.param(
                parameter.name, _boxed(parameter), parameter.shape, self.param_dtype
            )
            return own
        name, _, part = parameter.tied.partition(".")
        if part == "bias" and not self.bias:
            return jnp.zeros(parameter.shape, self.param_dtype)
        return heads_first(nn.unbox(self.variables["params"][name])[part], self.num_heads)


def _boxed(parameter: Parameter) -> nn.initializers.Initializer:
    """The parameter's initializer, with the logical names of its axes."""
    return nn.with_logical_partitioning(initializer(parameter.init), parameter.axes)
