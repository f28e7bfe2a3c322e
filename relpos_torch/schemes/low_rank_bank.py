"""LowRankBank: the bank with a zero row at each end, which then holds for all beyond."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from relpos.schemes import LowRankBank
from relpos_torch.kernels.terms import Lowered, Product, Table, Terms
from relpos_torch.schemes.call import Call

__all__ = ["lower"]


def lower(scheme: LowRankBank, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * <q, k> + <f, bank(j - i)>; the bank is 0 outside its extent."""
    assert call.query_features is not None
    bank = Table(torch.nn.functional.pad(params["bank"], (0, 0, 1, 1)), -scheme.extent)
    terms = Terms(call.scale, query=(Product(call.query_features, bank),))
    return Lowered(call.q, call.k, terms)
