"""No position at all: the control.

The score is the content alone:

    score[b,h,i,j] = scale * <q[b,h,i], k[b,h,j]>
    out[b,h,i]     = sum_j softmax(score)[i,j] * v[b,h,j]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relpos.schemes.base import Parameter, Scheme

__all__ = ["NoPosition"]


@dataclass(frozen=True)
class NoPosition(Scheme):
    """Plain attention: blind to order unless a mask tells it (Vaswani et al., 2017).

    Paper: https://arxiv.org/abs/1706.03762 (attention), https://arxiv.org/abs/2305.19466 (why
    causal models without positions still learn some order, on longer inputs too).

    Example:
        >>> NoPosition().parameters(num_heads=4, head_dim=16)
        ()
    """

    name: ClassVar[str] = "NoPosition"
    paper: ClassVar[str] = "Vaswani et al., 2017"
    url: ClassVar[str] = "https://arxiv.org/abs/1706.03762"
    used_by: ClassVar[tuple[str, ...]] = ()
    extrapolates: ClassVar[bool] = True
    content_only: ClassVar[bool] = True

    def parameters(self, num_heads: int, head_dim: int) -> tuple[Parameter, ...]:
        """None."""
        return ()
