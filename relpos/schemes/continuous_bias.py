"""ContinuousBias (Liu et al., 2022): a small network from the distance to a bias.

    x(d)           = sign(d) * log(1 + |d|)                               distance log
    x(d)           = d                                                    distance linear
    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]> + network(x(j - i))[h]
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]

The network has `depth` hidden layers of width `hidden`, from x_1 = act(x * hidden_kernel +
hidden_bias) to <x_depth, output_kernel[h]> + output_bias[h]. At the default positions it runs once
per distance. At explicit positions it runs once per pair: distances may then lie anywhere.

This is the bias of Swin v2 along one axis, without its limits on the result, and the dynamic bias
of Wang et al. (2022) without its normalisation.

In the table, mlp is that of x-transformers' `DynamicPositionBias` with `norm=False`.

| our name                              | x-transformers                                           |
|---------------------------------------|----------------------------------------------------------|
| `hidden`, `depth`                     | `dim`, `depth`                                           |
| `distance`                            | `log_distance`                                           |
| `hidden_kernel` [1, 1, hidden]        | minus `mlp.0.0.weight`, transposed: i - j is read there  |
| `hidden_bias` [1, hidden]             | `mlp.0.0.bias`                                           |
| `hidden_kernel_2` [1, hidden, hidden] | `mlp.1.0.weight`, transposed; and so on                  |
| `hidden_bias_2` [1, hidden]           | `mlp.1.0.bias`; and so on                                |
| `output_kernel` [H, hidden]           | the last layer's `weight`                                |
| `output_bias` [H]                     | the last layer's `bias`                                  |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from relpos.schemes.base import Parameter, Scheme
from relpos.schemes.network import check_network, network_parameters

__all__ = ["ContinuousBias"]


@dataclass(frozen=True)
class ContinuousBias(Scheme):
    """A bias per head that a small network makes of the distance.

    The formula and the names used elsewhere stand at the top of this module.

    Attributes:
        hidden: Width of the hidden layers, >= 1.
        depth: Number of hidden layers, >= 1.
        activation: What follows each hidden layer; `gelu` is the exact one.
        distance: What the network reads: the distance itself, `linear`, or its logarithm with its
            sign, `log`, which changes less beyond the lengths trained on.

    Raises:
        SettingError: The network has no layer, or no width.

    Paper: Swin Transformer V2: Scaling Up Capacity and Resolution, https://arxiv.org/abs/2111.09883.
    The dynamic bias: CrossFormer: A Versatile Vision Transformer Hinging on Cross-scale Attention,
    https://arxiv.org/abs/2108.00154.

    Example:
        >>> [p.shape for p in ContinuousBias(depth=1).parameters(num_heads=8, head_dim=64)]
        [(1, 1, 32), (1, 32), (8, 32), (8,)]
    """

    name: ClassVar[str] = "ContinuousBias"
    paper: ClassVar[str] = "Liu et al., 2022"
    url: ClassVar[str] = "https://arxiv.org/abs/2111.09883"
    used_by: ClassVar[tuple[str, ...]] = ()
    extrapolates: ClassVar[bool] = False

    hidden: int = 32
    depth: int = 2
    activation: Literal["silu", "relu", "gelu", "tanh"] = "silu"
    distance: Literal["log", "linear"] = "log"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_network(self.name, self.hidden, self.depth)

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """The network: kernels Glorot uniform, biases zero; the last layer has one row per head."""
        return network_parameters(num_heads, self.hidden, self.depth)
