"""ShawBoth: one table by distance meets the queries and the keys."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from relpos.schemes import ShawBoth
from relpos_torch.kernels.terms import Lowered, Product, Table, Terms
from relpos_torch.schemes.call import Call
from relpos_torch.schemes.shaw import beyond

__all__ = ["lower"]


def lower(scheme: ShawBoth, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * (<q, k> + <q, K[clip(j - i)]> + <k, K[clip(j - i)]>)."""
    table = Table(params["key_table"], -scheme.left)
    k = call.k.repeat_interleave(call.q.shape[1] // call.k.shape[1], 1)
    terms = Terms(
        call.scale,
        query=(Product(call.q, table, call.scale),),
        key=(Product(k, table, call.scale),),
        bias=() if scheme.clip else beyond(scheme, call),
    )
    return Lowered(call.q, call.k, terms)
