"""GatedT5: T5's bias as a vector of width 1 per distance, which meets a gate per query."""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from relpos.schemes import GatedT5
from relpos_torch.kernels.terms import Lowered, Product, Table, Terms
from relpos_torch.schemes.call import Call
from relpos_torch.schemes.t5 import bucket_rows

__all__ = ["gates", "lower"]


def lower(scheme: GatedT5, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * <q, k> + gate * bias_table[h, bucket(j - i)]."""
    assert call.query_features is not None
    bias_table = params["bias_table"]
    first, rows = bucket_rows(scheme.num_buckets, scheme.max_distance, scheme.bidirectional)
    by_distance = bias_table.index_select(-1, rows.to(bias_table.device))
    gate = gates(call.query_features, params["gate_scale"])
    product = Product(gate.unsqueeze(-1), Table(by_distance.unsqueeze(-1), first))
    return Lowered(call.q, call.k, Terms(call.scale, query=(product,)))


def gates(
    features: Float[Tensor, "B H L 8"], gate_scale: Float[Tensor, " H"]
) -> Float[Tensor, "B H L"]:
    """a * (c * gate_scale - 1) + 2, a and c the sigmoids of two sums of four features."""
    a, c = features.unflatten(-1, (2, 4)).sum(-1).sigmoid().unbind(-1)
    return a * (c * gate_scale.unsqueeze(-1) - 1.0) + 2.0
