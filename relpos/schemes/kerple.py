"""KERPLE (Chi et al., 2022): a learned penalty by the logarithm or a power of distance.

    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]> - p[h] * log(1 + a[h] * |j - i|)     kind log
    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]> - p[h] * |j - i| ** a[h]             kind power
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]

p > 0 and a > 0, for the power also a < 2. The authors clamp them before every use, to 0.01 at
least. Here numbers without limits are learned and read through
functions with a slope everywhere: p = softplus(penalty) and, of the logarithm, a = softplus(rate),
with softplus(x) = log(1 + exp x); of the power, a = 2 / (1 + exp(-exponent)). For a given p, take
penalty = log(exp(p) - 1); for a given exponent a, log(a / (2 - a)).

| our name          | the authors' code                                            |
|-------------------|--------------------------------------------------------------|
| `penalty` [H]     | `bias_p` [H, 1, 1], which holds p itself                     |
| `rate` [H]        | `bias_a` [H, 1, 1] of the logarithm, which holds a itself    |
| `exponent` [H]    | `bias_a` [H, 1, 1] of the power, which holds a itself        |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from relpos.schemes.base import Parameter, Scheme, uniform

__all__ = ["Kerple"]


@dataclass(frozen=True)
class Kerple(Scheme):
    """A learned penalty per head, of logarithmic or power growth.

    The formula and the names used elsewhere stand at the top of this module. The penalty is the
    same in both directions; a = 1 of the power is ALiBi's.

    Attributes:
        kind: What grows with the distance: its logarithm, `log`, or a `power` of it.

    Paper: KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation,
    https://arxiv.org/abs/2205.09921.

    Example:
        >>> [parameter.name for parameter in Kerple("power").parameters(num_heads=8, head_dim=64)]
        ['penalty', 'exponent']
    """

    name: ClassVar[str] = "Kerple"
    paper: ClassVar[str] = "Chi et al., 2022"
    url: ClassVar[str] = "https://arxiv.org/abs/2205.09921"
    used_by: ClassVar[tuple[str, ...]] = ()
    extrapolates: ClassVar[bool] = True

    kind: Literal["log", "power"] = "log"

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """`penalty` [H] and `rate` [H] or `exponent` [H].

        All are uniform on +-1: p and the logarithm's a from 0.31 to 1.31, the power's a from 0.54
        to 1.46. Heads that began alike would be told apart by their projections alone.
        """
        names = ("penalty", "rate" if self.kind == "log" else "exponent")
        return tuple(Parameter(name, ("heads",), (num_heads,), uniform(1.0)) for name in names)
