"""RoPE: q and k are rotated by their positions; no term is left."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from relpos.rotation import BYTES, byte_tables
from relpos.schemes import RoPE
from relpos_torch.constants import constant
from relpos_torch.kernels.positions import Positions
from relpos_torch.kernels.terms import Lowered, Terms

__all__ = ["angles", "byte_angles", "lower", "rotate"]


def lower(
    scheme: RoPE,
    params: Mapping[str, Tensor],
    q: Tensor,
    k: Tensor,
    positions: Positions,
    scale: float,
) -> Lowered:
    """score = scale * <R(i) q, R(j) k>."""
    query, key = positions.tensors(q.device)
    q = rotate(q, *angles(scheme, query, q.shape[-1], q.dtype), scheme.layout)
    k = rotate(k, *angles(scheme, key, k.shape[-1], k.dtype), scheme.layout)
    return Lowered(q, k, Terms(scale))


def angles(
    scheme: RoPE, positions: Int[Tensor, "*B L"], head_dim: int, dtype: torch.dtype
) -> tuple[Float[Tensor, "*B L m"], Float[Tensor, "*B L m"]]:
    """Cosines and sines of position * f_m, by adding the angles of the position's bytes."""
    tables = byte_angles(scheme, head_dim, dtype)
    cos_table, sin_table = (table.to(positions.device) for table in tables)
    distance_from_zero = positions.abs()
    cos, sin = torch.ones((), dtype=dtype), torch.zeros((), dtype=dtype)
    for place in range(BYTES):
        byte = (distance_from_zero >> (8 * place)) & 255
        cos_byte, sin_byte = cos_table[place][byte], sin_table[place][byte]
        cos, sin = cos * cos_byte - sin * sin_byte, sin * cos_byte + cos * sin_byte
    # What has more bytes is not a number, rather than another position's angle.
    beyond = (distance_from_zero >> (8 * BYTES) != 0).unsqueeze(-1)
    return cos.masked_fill(beyond, torch.nan), sin * positions.sign().unsqueeze(-1)


@constant
def byte_angles(scheme: RoPE, head_dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines [place, byte, m] of byte * 256**place * f_m."""
    cos, sin = byte_tables(scheme.base, scheme.rotated(head_dim), str(dtype).removeprefix("torch."))
    return torch.tensor(cos), torch.tensor(sin)


def rotate(
    x: Float[Tensor, "B H L d"],
    cos: Float[Tensor, "*B L m"],
    sin: Float[Tensor, "*B L m"],
    layout: str,
) -> Float[Tensor, "B H L d"]:
    """Rotate the first 2m channels of x, paired as `layout` says."""
    if cos.ndim == 3:
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    m = cos.shape[-1]
    turning, still = x[..., : 2 * m], x[..., 2 * m :]
    if layout == "half":
        first, second = turning.chunk(2, -1)
        turned = torch.cat((first * cos - second * sin, first * sin + second * cos), -1)
    else:
        first, second = turning.unflatten(-1, (m, 2)).unbind(-1)
        pairs = torch.stack((first * cos - second * sin, first * sin + second * cos), -1)
        turned = pairs.flatten(-2)
    return torch.cat((turned, still), -1)
