"""TransformerXL: sinusoids of distances are projected to a table, or queries are projected to meet
sinusoids of positions.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from relpos.schemes import TransformerXL
from relpos_torch.kernels.positions import Positions, distance_range
from relpos_torch.kernels.terms import Lowered, Product, Table, Terms
from relpos_torch.schemes.call import Call
from relpos_torch.schemes.rope import angles

__all__ = ["lower", "sinusoids", "turned"]


def lower(scheme: TransformerXL, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * (<q + content_bias, k> + <q + position_bias, s(i - j) @ position_kernel>)."""
    q = call.q + params["content_bias"].unsqueeze(-2)
    features = call.q + params["position_bias"].unsqueeze(-2)
    kernel = params["position_kernel"]
    B, _, Lq, d = q.shape
    seen = distance_range(call.positions)
    distances = scheme.projected(seen, B * Lq, call.positions.Lk, d)
    if distances is None:
        by_query, by_key = turned(scheme, features @ kernel.mT, call.positions)
        by_key = by_key.expand(*call.k.shape[:-1], -1)
        wide = (torch.cat((q, by_query), -1), torch.cat((call.k, by_key), -1))
        return Lowered(*wide, Terms(call.scale))
    lowest, highest = distances
    # The argument is i - j: the distance with the other sign.
    table = sinusoids(scheme, -torch.arange(lowest, highest + 1, device=q.device), q.dtype) @ kernel
    product = Product(features, Table(table, lowest), call.scale)
    return Lowered(q, call.k, Terms(call.scale, query=(product,)))


def sinusoids(
    scheme: TransformerXL, x: Int[Tensor, " N"], dtype: torch.dtype
) -> Float[Tensor, "N e"]:
    """s(x) of whole numbers."""
    cos, sin = angles(scheme, x.abs() if scheme.symmetric else x, 0, dtype)
    if scheme.order == "concat":
        return torch.cat((sin, cos), -1)
    return torch.stack((sin, cos), -1).flatten(-2)


def turned(
    scheme: TransformerXL, weights: Float[Tensor, "B H Lq e"], positions: Positions
) -> tuple[Float[Tensor, "B H Lq e"], Float[Tensor, "*B 1 Lk e"]]:
    """What of queries and of keys has the product <weights[i], s(i - j)>."""
    if scheme.order == "concat":
        of_sin, of_cos = weights.chunk(2, -1)
    else:
        of_sin, of_cos = weights.unflatten(-1, (-1, 2)).unbind(-1)
    query, key = positions.tensors(weights.device)
    cos, sin = (t.unsqueeze(-3) for t in angles(scheme, query, 0, weights.dtype))
    by_query = torch.cat((of_sin * sin + of_cos * cos, of_cos * sin - of_sin * cos), -1)
    by_key = torch.cat(angles(scheme, key, 0, weights.dtype), -1)
    return by_query, by_key.unsqueeze(-3)
