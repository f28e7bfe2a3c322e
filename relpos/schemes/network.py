"""The small network that some schemes ask for a bias: from one number to one per head.

x_1           = act(x * hidden_kernel + hidden_bias)
x_n           = act(x_(n-1) @ hidden_kernel_n + hidden_bias_n)        n = 2 .. depth
network(x)[h] = <x_depth, output_kernel[h]> + output_bias[h]
"""

from __future__ import annotations

from relpos.schemes.base import Parameter, glorot, require, zeros

__all__ = ["check_network", "network_parameters"]


def check_network(scheme: str, hidden: int, depth: int = 1) -> None:
    """Validate the settings that every scheme with a network shares."""
    require(
        hidden >= 1,
        f"{scheme}.hidden is the width of the network",
        got=hidden,
        expected="an int >= 1",
    )
    require(
        depth >= 1,
        f"{scheme}.depth counts the network's hidden layers",
        got=depth,
        expected="an int >= 1",
    )


def network_parameters(num_heads: int, hidden: int, depth: int = 1) -> tuple[Parameter, ...]:
    """The network's parameters in the order in which they are used; kernels Glorot uniform."""
    axes, table = ("shared", "features", "hidden"), []
    for n in range(1, depth + 1):
        end, before = ("" if n == 1 else f"_{n}"), (1 if n == 1 else hidden)
        init = glorot(before, hidden)
        table.append(Parameter(f"hidden_kernel{end}", axes, (1, before, hidden), init))
        table.append(Parameter(f"hidden_bias{end}", ("shared", "hidden"), (1, hidden), zeros()))
    init = glorot(hidden, num_heads)
    table.append(Parameter("output_kernel", ("heads", "hidden"), (num_heads, hidden), init))
    table.append(Parameter("output_bias", ("heads",), (num_heads,), zeros()))
    return tuple(table)
