"""MusicTransformer: a table by distance with a zero row for keys to come, or at both ends."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from relpos.schemes import MusicTransformer
from relpos_torch.kernels.terms import Lowered, Product, Table, Terms
from relpos_torch.schemes.call import Call

__all__ = ["lower"]


def lower(scheme: MusicTransformer, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * <q, k + E(j - i)>; E is 0 for j > i."""
    before = int(scheme.beyond == "zero")
    rows = torch.nn.functional.pad(params["key_table"], (0, 0, before, 1))
    table = Table(rows, -scheme.reach - before)
    terms = Terms(call.scale, query=(Product(call.q, table, call.scale),))
    return Lowered(call.q, call.k, terms)
