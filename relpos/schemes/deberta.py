"""DeBERTa (He et al., 2020): contents meet positions, both ways, through projections of one table.

    P[r]           = position_table[r], after a layer norm if `norm_eps` is given
    K[h,r]         = P[r] position_key_kernel[h] + position_key_bias[h]
    Q[h,r]         = P[r] position_query_kernel[h] + position_query_bias[h]
    score[b,h,i,j] = scale * (<q[b,h,i], k[b,h,j]>
                              + <q[b,h,i], K[h, row(j-i)]>          `c2p`, content to position
                              + <k[b,h,j], Q[h, row(j-i)]>)         `p2c`, position to content
    scale          = 1 / sqrt(d * (1 + number of position terms))
    row(d)         = clip(s(d) + N/2 - 1, 0, N - 1)
    s(d)           = d                                              no `buckets` (v1)
                   = d                                              abs(d) <= m = buckets / 2
                   = sign(d) (m + ceil((m-1) log(abs(d)/m) / log((max_distance-1)/m)))   otherwise

The table has N = 2 max_distance rows, or 2 buckets rows. The ceiling is decided in whole numbers:
`relpos.distance.deberta_bucket`.

Both terms read the row of one and the same distance. The paper writes the second one with the
distance of the opposite sign, that of the query as the key sees it. The released code, with which
all checkpoints were trained, and transformers do as we do: their index is minus the bucket of
j - i, and buckets are odd, so that it is that of i - j after all.

With `shared` the two projections are the layer's own key and query projections, their biases
included, and the table is as wide as the layer's input; grouped heads share those of their key.
In the checkpoints one table, and its norm, serve all layers.

| our name                         | DeBERTa v2, v3 in transformers          | DeBERTa v1          |
|----------------------------------|-----------------------------------------|---------------------|
| `position_table`, ascending rows | `rel_embeddings.weight`, reversed       | the same            |
| `position_norm_scale`, `_bias`   | `encoder.LayerNorm`, by `norm_rel_ebd`  | none                |
| `position_key_kernel`, `_bias`   | `pos_key_proj`; shared `key_proj`       | `pos_proj`, no bias |
| `position_query_kernel`, `_bias` | `pos_query_proj`; shared `query_proj`   | `pos_q_proj`        |
| `max_distance`                   | `max_relative_positions`                | the same            |
| `buckets`                        | `position_buckets`                      | none                |
| `shared`                         | `share_att_key`                         | none, False         |
| `c2p`, `p2c`                     | `pos_att_type`                          | the same            |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from relpos.schemes.base import Parameter, Scheme, Tied, constant, glorot, normal, require, zeros

__all__ = ["DeBERTa"]


@dataclass(frozen=True)
class DeBERTa(Scheme):
    """Disentangled attention: content to position and position to content.

    The formula and the names used elsewhere stand at the top of this module. The defaults are those
    of DeBERTa v2 and v3; v1 is `DeBERTa(width, buckets=None, shared=False, key_bias=False,
    norm_eps=None)`. Each position term is scaled together with the content.

    Attributes:
        width: Width of the table, E; that of the layer's input if `shared`.
        max_distance: Without buckets, keys from `max_distance` on after the query and from
            `max_distance - 1` on before it read the last row of their side. With buckets, the
            logarithm runs to `max_distance - 1`.
        buckets: Logarithmic buckets, even and >= 4: distances up to half as many are told apart.
            None gives every distance a row, clipped.
        c2p: Queries meet position keys.
        p2c: Keys meet position queries.
        shared: Project the table with the layer's own key and query projections. False learns
            projections of their own.
        key_bias: The separate projection to position keys has a bias; False only in v1.
        norm_eps: Added to the variance in a layer norm of the table, > 0; None is no norm.

    Raises:
        SettingError: The buckets cannot be laid out, no term is wanted, a setting has nothing to
            act on, or the layer has another width than a shared table.

    Papers: DeBERTa: Decoding-enhanced BERT with Disentangled Attention,
    https://arxiv.org/abs/2006.03654; DeBERTaV3: Improving DeBERTa using ELECTRA-Style Pre-Training
    with Gradient-Disentangled Embedding Sharing, https://arxiv.org/abs/2111.09543.

    Example:
        >>> [p.name for p in DeBERTa(768, p2c=False, norm_eps=None).parameters(12, 64)]
        ['position_table', 'position_key_kernel', 'position_key_bias']
    """

    name: ClassVar[str] = "DeBERTa"
    paper: ClassVar[str] = "He et al., 2020"
    url: ClassVar[str] = "https://arxiv.org/abs/2006.03654"
    used_by: ClassVar[tuple[str, ...]] = ("DeBERTa", "DeBERTa-v2", "DeBERTa-v3", "mDeBERTa-v3")
    extrapolates: ClassVar[bool] = False

    width: int
    max_distance: int = 512
    buckets: int | None = 256
    c2p: bool = True
    p2c: bool = True
    shared: bool = True
    key_bias: bool = True
    norm_eps: float | None = 1e-7

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("width", "max_distance"):
            value = getattr(self, name)
            require(
                value >= 1, f"DeBERTa.{name} counts something", got=value, expected="an int >= 1"
            )
        if self.buckets is not None:
            require(
                self.buckets >= 4 and self.buckets % 2 == 0,
                "DeBERTa.buckets must leave a logarithmic bucket on each side",
                got=self.buckets,
                expected=">= 4 and even, or None",
            )
            require(
                self.max_distance > self.buckets // 2 + 1,
                "DeBERTa.max_distance must lie beyond the exact buckets",
                got=self.max_distance,
                expected=f"> {self.buckets // 2 + 1}",
            )
        require(
            self.c2p or self.p2c,
            "DeBERTa needs content to position, position to content, or both",
            got="c2p=False, p2c=False",
            expected="at least one of them True (or NoPosition())",
        )
        require(
            self.key_bias or (self.c2p and not self.shared),
            "DeBERTa.key_bias speaks of a separate projection to position keys",
            got=f"key_bias=False, c2p={self.c2p}, shared={self.shared}",
            expected="key_bias=True, or c2p=True and shared=False",
        )
        require(
            self.norm_eps is None or 0.0 < self.norm_eps < math.inf,
            "DeBERTa.norm_eps is added to a variance",
            got=self.norm_eps,
            expected="a finite number > 0, or None for no norm",
        )

    @property
    def num_rows(self) -> int:
        """Rows of the table, N."""
        return 2 * (self.max_distance if self.buckets is None else self.buckets)

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """`position_table` [1, N, E], normal with std 0.02; `position_norm_scale` [1, E], ones, and
        `position_norm_bias` [1, E], zeros; kernels [H, E, d], Glorot uniform, and biases [H, d],
        zeros, of position keys and queries.
        """
        axes = ("shared", "distance" if self.buckets is None else "bucket", "embed")
        shape = (1, self.num_rows, self.width)
        table = [Parameter("position_table", axes, shape, normal(0.02))]
        if self.norm_eps is not None:
            for part, init in (("scale", constant(1.0)), ("bias", zeros())):
                name = f"position_norm_{part}"
                table.append(Parameter(name, ("shared", "embed"), (1, self.width), init))
        sizes = (num_heads, self.width, head_dim)
        if self.c2p:
            kernel, bias = self._projection("key", sizes, "key.kernel", "key.bias")
            table += [kernel, bias] if self.key_bias else [kernel]
        if self.p2c:
            table += self._projection("query", sizes, "query.kernel", "query.bias")
        return tuple(table)

    def _projection(
        self, side: str, sizes: tuple[int, int, int], kernel: Tied, bias: Tied
    ) -> tuple[Parameter, Parameter]:
        """Kernel and bias of the projection to position keys or queries, and what they share."""
        H, E, d = sizes
        return (
            Parameter(
                f"position_{side}_kernel",
                ("heads", "embed", "head_dim"),
                sizes,
                glorot(E, H * d),
                tied=kernel if self.shared else None,
            ),
            Parameter(
                f"position_{side}_bias",
                ("heads", "head_dim"),
                (H, d),
                zeros(),
                tied=bias if self.shared else None,
            ),
        )

    def scale(self, head_dim: int) -> float:
        """1 / sqrt(d * (1 + number of position terms)): the variance of a sum of so many."""
        return 1.0 / math.sqrt(head_dim * (1 + self.c2p + self.p2c))

    def check_layer(self, embed_dim: int, num_heads: int) -> None:
        """A shared projection reads the layer's input and the table, which are equally wide."""
        require(
            not self.shared or self.width == embed_dim,
            "DeBERTa.width is that of the layer's input if the projections are shared",
            got=f"width={self.width}, embed_dim={embed_dim}",
            expected=f"DeBERTa({embed_dim}, ...), or shared=False",
        )
