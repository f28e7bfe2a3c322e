"""Places counted by the content: how much of the keys from a key on a query counts.

gate[i,m]  = sigmoid(content[i,m]) for the keys m that i may attend to, else 0
place[i,j] = sum of gate[i,m] over the keys m that stand where j does or later
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from relpos_torch.kernels.positions import Positions
from relpos_torch.kernels.terms import Counted

__all__ = ["between_rows", "counted_scores", "places"]


def counted_scores(
    counted: Counted,
    q: Float[Tensor, "B H Lq d"],
    content: Float[Tensor, "B H Lq Lk"],
    mask: Bool[Tensor, "..."] | None,
    positions: Positions,
) -> Float[Tensor, "B H Lq Lk"]:
    """scale * <q[i], the table at place[i,j]> for every pair."""
    products = counted.scale * (q @ counted.values.mT)
    return between_rows(products, places(content, mask, positions))


def places(
    content: Float[Tensor, "B H Lq Lk"], mask: Bool[Tensor, "..."] | None, positions: Positions
) -> Float[Tensor, "B H Lq Lk"]:
    """The place of every key, counted from the end."""
    gates = content.sigmoid()
    if mask is not None:
        gates = gates.masked_fill(~mask, 0.0)
    if positions.key is None:
        return _sums_from(gates)
    key = positions.key.to(content.device)
    in_order, order = key.sort(-1)
    first = torch.searchsorted(in_order, key.contiguous())  # of the keys that stand where j does
    order, first = (at.reshape(-1, 1, 1, positions.Lk).expand_as(gates) for at in (order, first))
    return _sums_from(gates.gather(-1, order)).gather(-1, first)


def between_rows(
    products: Float[Tensor, "B H Lq N"], place: Float[Tensor, "B H Lq Lk"]
) -> Float[Tensor, "B H Lq Lk"]:
    """The products at whole places, and between them on straight lines; constant from N - 1 on."""
    last = products.shape[-1] - 1
    # What is not a number has no row, but stays none by its weight.
    below = place.detach().nan_to_num(0.0).clamp(0, last - 1).floor()
    weight = (place - below).masked_fill(place >= last, 1.0)
    row = below.long()
    return (1.0 - weight) * products.gather(-1, row) + weight * products.gather(-1, row + 1)


def _sums_from(gates: Float[Tensor, "B H Lq Lk"]) -> Float[Tensor, "B H Lq Lk"]:
    return gates.flip(-1).cumsum(-1).flip(-1)
