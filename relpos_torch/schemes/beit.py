"""BEiT: an entry per pair of positions, for the class token stands on no grid."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from relpos.schemes import BEiT
from relpos_torch.kernels.terms import Lowered, PairBias, Terms
from relpos_torch.schemes.call import Call
from relpos_torch.schemes.grid import beyond

__all__ = ["entries", "lower"]


def lower(scheme: BEiT, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * <q, k> + bias_table[h, entry of query and key]."""

    def bias(
        tables: tuple[Tensor, ...], query: Int[Tensor, "*Bq Lq"], key: Int[Tensor, "*Bk Lk"]
    ) -> Float[Tensor, "*B H Lq Lk"]:
        index = entries(scheme, query, key)
        by_head = tables[0].index_select(-1, index.reshape(-1))
        return by_head.reshape(-1, *index.shape).movedim(0, -3)

    terms = Terms(
        call.scale,
        bias=beyond(scheme, call),
        pair_bias=PairBias(bias, (params["bias_table"],)),
    )
    return Lowered(call.q, call.k, terms)


def entries(
    scheme: BEiT, query: Int[Tensor, "*Bq Lq"], key: Int[Tensor, "*Bk Lk"]
) -> Int[Tensor, "*B Lq Lk"]:
    """The table's row for every pair of positions."""
    height, width = scheme.height, scheme.width
    offsets = (2 * height - 1) * (2 * width - 1)
    i, j = query.unsqueeze(-1), key.unsqueeze(-2)
    down = (j - 1) // width - (i - 1) // width
    right = (j - 1) % width - (i - 1) % width
    between_patches = (down + height - 1) * (2 * width - 1) + right + width - 1
    from_class = torch.where(j == 0, offsets + 2, offsets)
    index = torch.where(i == 0, from_class, torch.where(j == 0, offsets + 1, between_patches))
    # Positions off the grid have no entry; `beyond` answers for them.
    return index.clamp(0, offsets + 2)
