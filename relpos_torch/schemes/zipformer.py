"""Zipformer: encodings of compressed distances are projected to a table, for small queries."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from relpos.schemes import Zipformer
from relpos_torch.kernels.positions import distance_range
from relpos_torch.kernels.terms import Lowered, Product, Table, Terms
from relpos_torch.schemes.call import Call

__all__ = ["encodings", "lower"]


def lower(scheme: Zipformer, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * <q, k> + <query features, s(j - i) @ position_kernel>."""
    assert call.query_features is not None
    lowest, highest = scheme.listed(distance_range(call.positions))
    rows = encodings(scheme, lowest, highest, call.q.device).to(call.q.dtype)
    product = Product(call.query_features, Table(rows @ params["position_kernel"], lowest))
    return Lowered(call.q, call.k, Terms(call.scale, query=(product,)))


def encodings(
    scheme: Zipformer, lowest: int, highest: int, device: torch.device
) -> Float[Tensor, "N e"]:
    """s(x) for every distance from the lowest to the highest, in float64."""
    E = scheme.width
    x = torch.arange(lowest, highest + 1, dtype=torch.float64, device=device)
    compressed = math.sqrt(E) * x.sign() * torch.log1p(x.abs() / math.sqrt(E))
    angle = torch.atan(compressed * (2 * math.pi / (scheme.length_factor * E)))
    multiples = angle[:, None] * torch.arange(1, E // 2 + 1, device=device)
    pairs = torch.stack((multiples.cos(), multiples.sin()), -1).flatten(-2)
    return torch.cat((pairs[:, :-1], torch.ones_like(pairs[:, -1:])), -1)
