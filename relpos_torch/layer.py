"""The layer: projections around relative attention."""

from __future__ import annotations

from typing import overload

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from relpos.checks import check_call, check_input, check_mask
from relpos.errors import ShapeError
from relpos.schemes import Parameter, Scheme
from relpos.schemes.base import Projection
from relpos.settings import AttentionSettings
from relpos_torch.cache import KVCache
from relpos_torch.functional import attention
from relpos_torch.initialise import initializer
from relpos_torch.kernels import choose_kernel
from relpos_torch.projection import heads_first, read

__all__ = ["RelativeAttention"]


class RelativeAttention(nn.Module):
    """Multi-head attention with relative positions.

        q, k, v = x W_q + b_q, y W_k + b_k, y W_v + b_v          y = x in self-attention
        out     = concat_h(attention(q, k, v)) W_o + b_o

    Parameters: `query.weight` [H*d, D], `key.weight` and `value.weight` [G*d, D], `out.weight`
    [D, H*d], their biases, and the scheme's own, such as `key_table`. The state dict holds nothing
    else. Inputs are batch first, channels last.

    Args:
        embed_dim: Width of the inputs and outputs, D.
        num_heads: Query heads, H.
        scheme: The relative position scheme, for example `relpos.Shaw(16, 16)`.
        num_kv_heads: Key and value heads, G, a divisor of H; None means H.
        head_dim: Width of one head, d; None means D / H.
        bias: Add a learned bias after each projection.
        causal: No query attends to a key at a later position.
        dropout: Probability of dropping an attention weight in training mode, drawn from torch's
            global generator.
        scale: Factor on <q, k>; None takes the scheme's own, usually 1 / sqrt(d).
        implementation: The kernel: "auto", "dense", "blockwise" or "fused", see `attention`.
        device: Device of the parameters.
        dtype: Dtype of the parameters; inputs have the same, unless under autocast.

    Raises:
        SettingError: A setting is impossible, alone or beside another.

    Example:
        >>> from relpos import Shaw
        >>> layer = RelativeAttention(64, 4, Shaw(left=16, right=16))
        >>> layer(torch.randn(2, 100, 64)).shape
        torch.Size([2, 100, 64])
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
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.settings = AttentionSettings(
            embed_dim, num_heads, scheme, num_kv_heads, head_dim, bias, causal, dropout, scale
        )
        choose_kernel(implementation, scheme)
        self.implementation = implementation
        inner = num_heads * self.settings.width
        kv_inner = self.settings.kv_heads * self.settings.width
        self.query = nn.Linear(embed_dim, inner, bias, device, dtype)
        self.key = nn.Linear(embed_dim, kv_inner, bias, device, dtype)
        self.value = nn.Linear(embed_dim, kv_inner, bias, device, dtype)
        self.out = nn.Linear(inner, embed_dim, bias, device, dtype)
        self._scheme_parameters = scheme.parameters(num_heads, self.settings.width)
        for table in self.settings.parameters():
            if "." in table.name:  # held by a projection
                continue
            empty = torch.empty(table.shape, device=device, dtype=dtype)
            self.register_parameter(table.name, nn.Parameter(empty))
        self.reset_parameters()

    @classmethod
    def from_settings(
        cls,
        settings: AttentionSettings,
        *,
        implementation: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
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
            device=device,
            dtype=dtype,
        )

    def reset_parameters(self) -> None:
        """Draw every parameter anew from the distribution that the settings state."""
        with torch.no_grad():
            for parameter in self.settings.parameters():
                tensor = self.get_parameter(parameter.name.replace(".kernel", ".weight"))
                initializer(parameter.init)(tensor)

    def init_cache(self, batch: int, capacity: int, *, dtype: torch.dtype | None = None) -> KVCache:
        """An empty cache for `batch` rows of up to `capacity` tokens.

        Its dtype is that of the layer's parameters, unless another is named.
        """
        weight = self.key.weight
        settings = self.settings
        read = settings.scheme.key_projection
        return KVCache.empty(
            batch,
            capacity,
            settings.kv_heads,
            settings.width,
            device=weight.device,
            dtype=weight.dtype if dtype is None else dtype,
            features=None if read is None else (settings.num_heads, read.width),
        )

    @overload
    def forward(
        self,
        x: Tensor,
        key_value: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        key_positions: Tensor | None = None,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        cache: KVCache,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, KVCache]: ...

    def forward(
        self,
        x: Float[Tensor, "B L D"],
        key_value: Float[Tensor, "B Lk D"] | None = None,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
        key_positions: Int[Tensor, "..."] | None = None,
        cache: KVCache | None = None,
        lengths: Int[Tensor, " rows"] | None = None,
    ) -> Float[Tensor, "B L D"] | tuple[Float[Tensor, "B L D"], KVCache]:
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

        Returns:
            The output; with a cache, a pair of output and the cache that includes x.

        Raises:
            ShapeError: Shapes, dtypes or arguments do not fit.
            DistanceError: A distance lies beyond a table that may not clip.
        """
        settings = self.settings
        check_input("x", tuple(x.shape), settings.embed_dim)
        if key_value is not None:
            check_input("key_value", tuple(key_value.shape), settings.embed_dim)
        self._check_dtype("x", x)
        if key_value is not None:
            self._check_dtype("key_value", key_value)
        check_call(
            settings.scheme,
            cross=key_value is not None,
            positions=positions is not None,
            key_positions=key_positions is not None,
            cache=cache is not None,
            lengths=lengths is not None,
        )
        source = x if key_value is None else key_value
        q = self._split(self.query(x), settings.num_heads)
        k = self._split(self.key(source), settings.kv_heads)
        v = self._split(self.value(source), settings.kv_heads)
        query_features = self._read(settings.scheme.query_projection, x)
        key_features = self._read(settings.scheme.key_projection, source)
        if key_value is None:
            key_positions = positions
        if cache is not None:
            appended = cache.append(k, v, lengths, key_features)
            cache, positions, key_positions = appended[:3]
            if mask is not None:
                check_mask(tuple(mask.shape), str(mask.dtype), cache.sizes(q))
                mask = mask & appended.mask
            else:
                mask = appended.mask
            k, v = cache.key.to(q.dtype), cache.value.to(q.dtype)
            if cache.features is not None and settings.scheme.key_projection is not None:
                empty = ~appended.filled[:, None, :, None]
                key_features = cache.features.to(q.dtype)
                key_features = key_features.masked_fill(empty, settings.scheme.key_projection.empty)
        attended = attention(
            q,
            k,
            v,
            settings.scheme,
            {p.name: self._parameter_of(p) for p in self._scheme_parameters},
            mask=mask,
            causal=settings.causal,
            query_positions=positions,
            key_positions=key_positions,
            query_features=query_features,
            key_features=key_features,
            scale=settings.scale,
            dropout=settings.dropout if self.training else 0.0,
            implementation=self.implementation,
        )
        out: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return out if cache is None else (out, cache)

    def extra_repr(self) -> str:
        """The settings, in torch's printed form of a module."""
        return str(self.settings)

    def _check_dtype(self, name: str, x: Tensor) -> None:
        if x.dtype != self.query.weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise ShapeError(
                f"{name} must have the dtype of the layer's parameters, unless under autocast",
                got=x.dtype,
                expected=self.query.weight.dtype,
            )

    def _read(
        self, projection: Projection | None, x: Float[Tensor, "B L D"]
    ) -> Float[Tensor, "B H L e"] | None:
        if projection is None:
            return None
        kernel = self.get_parameter(f"{projection.name}_kernel")
        bias = self.get_parameter(f"{projection.name}_bias") if projection.bias else None
        return read(projection, x, kernel, bias, self.settings.num_heads)

    def _parameter_of(self, parameter: Parameter) -> Tensor:
        if parameter.tied is None:
            return self.get_parameter(parameter.name)
        name, _, part = parameter.tied.partition(".")
        linear = self.query if name == "query" else self.key
        if part == "bias" and not self.settings.bias:
            return linear.weight.new_zeros(parameter.shape)
        own = linear.weight if part == "kernel" else linear.bias
        return heads_first(own, self.settings.width, self.settings.num_heads)

    def _split(self, projected: Float[Tensor, "B L inner"], heads: int) -> Float[Tensor, "B H L d"]:
        return projected.unflatten(-1, (heads, self.settings.width)).transpose(1, 2)
