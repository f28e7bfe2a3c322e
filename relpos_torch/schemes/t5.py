"""T5: the bucket table, read at the bucket of every distance that has one of its own."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from relpos.distance import t5_row_map
from relpos.schemes import T5
from relpos_torch.kernels.positions import Positions
from relpos_torch.kernels.terms import Lowered, Table, Terms

__all__ = ["lower"]


def lower(
    scheme: T5,
    params: Mapping[str, Tensor],
    q: Tensor,
    k: Tensor,
    positions: Positions,
    scale: float,
) -> Lowered:
    """score = scale * <q, k> + bias_table[h, bucket(j - i)]."""
    buckets = t5_row_map(scheme.num_buckets, scheme.max_distance, scheme.bidirectional)
    bias_table = params["bias_table"]
    index = torch.tensor(buckets.rows, device=bias_table.device, dtype=torch.long)
    by_distance = bias_table.index_select(-1, index)
    return Lowered(q, k, Terms(scale, bias=Table(by_distance, buckets.first)))
