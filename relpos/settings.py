"""The settings and the parameter table of one relative attention layer, in any framework."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from relpos.schemes import Parameter, Scheme, scheme_from_dict
from relpos.schemes.base import check_types, glorot, require, zeros

__all__ = ["AttentionSettings"]


@dataclass(frozen=True)
class AttentionSettings:
    """Everything about a relative attention layer that is not a learned number.

    The three layers (`relpos_torch.RelativeAttention`, `relpos_jax.nnx.RelativeAttention`,
    `relpos_jax.linen.RelativeAttention`) take the same settings under the same names, and the
    neutral weights file stores them.

    Attributes:
        embed_dim: Width of the inputs and outputs, D.
        num_heads: Query heads, H.
        scheme: The relative position scheme.
        num_kv_heads: Key and value heads, G, a divisor of H; query head h reads key head
            h // (H / G). None means H.
        head_dim: Width of one head, d. None means D / H, which must then be whole.
        bias: Add a learned bias after each of the four projections.
        causal: Keys after the query may not be attended to.
        dropout: Probability of dropping an attention weight while training, 0 <= p < 1.
        scale: Factor on <q, k>. None takes the scheme's own, usually 1 / sqrt(d).

    Raises:
        SettingError: A setting is impossible, alone or beside another.

    Example:
        >>> from relpos import Shaw
        >>> AttentionSettings(64, 4, Shaw(8, 8)).parameters()[0].shape
        (64, 4, 16)
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

    def __post_init__(self) -> None:
        require(
            isinstance(self.scheme, Scheme),
            "scheme must be one of relpos.SCHEMES, with its settings",
            got=repr(self.scheme),
            expected="for example Shaw(left=16, right=16)",
        )
        check_types(self, "AttentionSettings")
        for name in ("embed_dim", "num_heads", "num_kv_heads", "head_dim"):
            value = getattr(self, name)
            require(
                value is None or value >= 1, f"{name} counts something", got=value, expected=">= 1"
            )
        require(
            self.head_dim is not None or self.embed_dim % self.num_heads == 0,
            "embed_dim must be divisible by num_heads unless head_dim is given",
            got=f"embed_dim={self.embed_dim}, num_heads={self.num_heads}",
            expected=f"a multiple of {self.num_heads}, or head_dim=...",
        )
        require(
            self.num_heads % self.kv_heads == 0,
            "num_heads must be divisible by num_kv_heads",
            got=f"num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}",
            expected=f"a divisor of {self.num_heads}",
        )
        require(
            0.0 <= self.dropout < 1.0,
            "dropout is the probability of dropping an attention weight",
            got=self.dropout,
            expected="0 <= dropout < 1",
        )
        require(
            self.scale is None or (math.isfinite(self.scale) and self.scale != 0.0),
            "scale is the factor on <q, k>",
            got=self.scale,
            expected="a finite number other than 0, or None for the scheme's own",
        )
        self.scheme.check_head_dim(self.width)
        self.scheme.check_layer(self.embed_dim, self.num_heads)
        self.parameters()  # a projection may refuse the width

    @property
    def width(self) -> int:
        """Width of one head, d."""
        return self.embed_dim // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def kv_heads(self) -> int:
        """Key and value heads, G."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def score_scale(self) -> float:
        """The factor on <q, k>."""
        return self.scheme.scale(self.width) if self.scale is None else self.scale

    def parameters(self) -> tuple[Parameter, ...]:
        """The layer's learned arrays, in order, with the neutral names and shapes.

        `query.kernel` [D, H, d], `key.kernel` and `value.kernel` [D, G, d], `out.kernel` [H, d, D],
        their biases if `bias`, then those of the scheme's projections and its own, but for the ones
        that are tied. Kernels are Glorot uniform, biases zero. A scheme that does not scale by
        1 / sqrt(d) has that factor in its fresh query kernel, so that the scores of every fresh
        layer have the same spread.
        """
        table: list[Parameter] = []
        inner = {"query": self.num_heads, "key": self.kv_heads, "value": self.kv_heads}
        for name, heads in inner.items():
            axis = "heads" if name == "query" else "kv_heads"
            init = glorot(self.embed_dim, heads * self.width)
            if name == "query" and self.scale is None:
                init = init.times(self.width**-0.5 / self.score_scale)
            axes = ("embed", axis, "head_dim")
            table.append(
                Parameter(f"{name}.kernel", axes, (self.embed_dim, heads, self.width), init)
            )
            if self.bias:
                table.append(Parameter(f"{name}.bias", axes[1:], (heads, self.width), zeros()))
        axes = ("heads", "head_dim", "embed")
        shape = (self.num_heads, self.width, self.embed_dim)
        init = glorot(self.num_heads * self.width, self.embed_dim)
        table.append(Parameter("out.kernel", axes, shape, init))
        if self.bias:
            table.append(Parameter("out.bias", ("embed",), (self.embed_dim,), zeros()))
        for projection in (self.scheme.query_projection, self.scheme.key_projection):
            if projection is not None:
                table += projection.parameters(self.embed_dim, self.num_heads)
        own = self.scheme.parameters(self.num_heads, self.width)
        return (*table, *(parameter for parameter in own if parameter.tied is None))

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain JSON types."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {**fields, "scheme": self.scheme.to_dict()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> AttentionSettings:
        """The inverse of `to_dict`; unknown and missing settings are errors."""
        known = {f.name for f in dataclasses.fields(cls)}
        require(
            set(data) == known,
            "stored layer settings must name every field once",
            got=sorted(data),
            expected=sorted(known),
        )
        return cls(**{**data, "scheme": scheme_from_dict(data["scheme"])})
