"""FIRE (Li et al., 2024): a small network of the distance as a share of the query's position.

    psi(x)         = log(1 + c x)
    share(i, j)    = psi(|i - j|) / psi(max(i, L))
    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]> + network(share(i, j))[h]
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]

i and j are the positions of query and key, counted from 0; the network is <x_1, output_kernel[h]> +
output_bias[h] with x_1 = max(0, share * hidden_kernel + hidden_bias). In causal attention a share
lies between 0 and 1, whatever the length. The paper knows no keys after the query; here their
distance counts like that of keys before it, and their share may exceed 1.

The learned numbers c > 0 and L > 0 are read through softplus(x) = log(1 + exp x), which has a slope
everywhere: c = softplus(rate) and L = threshold * softplus(stretch). For a given c, take rate =
log(exp(c) - 1).

The bias is no function of distance, so the network runs once per pair: what it costs beside the
scores grows with `hidden`.

| our name                       | the paper's code                                               |
|--------------------------------|----------------------------------------------------------------|
| `rate` [1]                     | `c`, which holds c itself, up to its sign                      |
| `stretch` [1]                  | `L_multiplier`, which holds L / `init_L`, up to its sign       |
| `threshold`                    | `init_L`                                                       |
| `hidden`                       | `mlp_width`                                                    |
| `hidden_kernel` [1, 1, hidden] | `mlp.0.weight`, transposed                                     |
| `hidden_bias` [1, hidden]      | `mlp.0.bias`                                                   |
| `output_kernel` [H, hidden]    | `mlp.2.weight`                                                 |
| `output_bias` [H]              | `mlp.2.bias`                                                   |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from relpos.schemes.base import Parameter, Scheme, constant, require
from relpos.schemes.network import check_network, network_parameters

__all__ = ["Fire"]


@dataclass(frozen=True)
class Fire(Scheme):
    """A bias per head that a small network makes of the distance over the query's position.

    The formula and the names used elsewhere stand at the top of this module.

    Attributes:
        hidden: Width of the network, >= 1.
        threshold: Where L begins, in positions: up to there distances are measured by L and not by
            the query's position; > 0.

    Raises:
        SettingError: A setting is impossible.

    Paper: Functional Interpolation for Relative Positions Improves Long Context Transformers,
    https://arxiv.org/abs/2310.04418.

    Example:
        >>> [p.name for p in Fire().parameters(num_heads=8, head_dim=64)][:3]
        ['rate', 'stretch', 'hidden_kernel']
    """

    name: ClassVar[str] = "Fire"
    paper: ClassVar[str] = "Li et al., 2024"
    url: ClassVar[str] = "https://arxiv.org/abs/2310.04418"
    used_by: ClassVar[tuple[str, ...]] = ()
    extrapolates: ClassVar[bool] = True
    translation_invariant: ClassVar[bool] = False

    hidden: int = 32
    threshold: float = 512.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_network(self.name, self.hidden)
        require(
            math.isfinite(self.threshold) and self.threshold > 0.0,
            "Fire.threshold is a position to measure distances by",
            got=self.threshold,
            expected="a finite number > 0",
        )

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """`rate` and `stretch` [1], so that c = 0.1 and L = threshold; then the network's."""
        return (
            Parameter("rate", ("shared",), (1,), constant(math.log(math.expm1(0.1)))),
            Parameter("stretch", ("shared",), (1,), constant(math.log(math.expm1(1.0)))),
            *network_parameters(num_heads, self.hidden),
        )
