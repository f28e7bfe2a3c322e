"""RoPE: q and k are rotated by their positions; no term is left."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from relpos.checks import check_length_seen
from relpos.rotation import BYTES, byte_tables
from relpos.schemes import DynamicNTK, LongRoPE, RoPE, Sandwich, TransformerXL, XPos
from relpos_torch.constants import constant
from relpos_torch.kernels.positions import Positions
from relpos_torch.kernels.terms import Lowered, Terms
from relpos_torch.schemes.call import Call

__all__ = ["angles", "byte_angles", "call_lengths", "lower", "rotate", "seen_lengths", "turns"]


def lower(scheme: RoPE, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * <R(i) q, R(j) k>."""
    query, key = call.positions.along_axes(call.q.device)
    d, dtype = call.q.shape[-1], call.q.dtype
    q = rotate(call.q, *turns(scheme, query, call.positions, d, dtype), scheme.layout)
    k = rotate(call.k, *turns(scheme, key, call.positions, d, dtype), scheme.layout)
    return Lowered(q, k, Terms(call.scale))


def turns(
    scheme: RoPE,
    at: Int[Tensor, "..."],
    positions: Positions,
    head_dim: int,
    dtype: torch.dtype,
) -> tuple[Float[Tensor, "*rows L m"], Float[Tensor, "*rows L m"]]:
    """Cosines and sines at some of a call's positions, by the frequencies of its length."""
    scaling = scheme.scaling
    if isinstance(scaling, LongRoPE):
        short = angles(scheme, at, head_dim, dtype)
        long = angles(scheme, at, head_dim, dtype, scaling.original_length + 1)
        is_long = (call_lengths(positions, at.device) > scaling.original_length)[..., None, None]
        cos, sin = (torch.where(is_long, b, a) for a, b in zip(short, long, strict=True))
    elif isinstance(scaling, DynamicNTK) and scaling.length is None:
        lengths = check_length_seen(seen_lengths(positions))
        if len(lengths) == 1:
            cos, sin = angles(scheme, at, head_dim, dtype, lengths[0])
        else:
            rows = zip(at.expand(len(lengths), -1), lengths, strict=True)
            by_row = [angles(scheme, row, head_dim, dtype, length) for row, length in rows]
            cos, sin = (torch.stack(parts) for parts in zip(*by_row, strict=True))
    else:
        cos, sin = angles(scheme, at, head_dim, dtype)
    if scaling is not None:
        cos, sin = cos * scaling.magnitude, sin * scaling.magnitude
    return cos, sin


def call_lengths(positions: Positions, device: torch.device) -> Int[Tensor, "*B"]:
    """The length of each row: its largest position + 1, over queries and keys."""
    lengths = [
        at.amax(-1) if positions.axes is None else at.amax((-2, -1))
        for at in positions.along_axes(device)
    ]
    return torch.maximum(*lengths) + 1


def seen_lengths(positions: Positions) -> list[int] | None:
    """The length of each row, or of all as one; None where values cannot be seen."""
    given = positions.axes or (positions.query, positions.key)
    if given[0] is None:
        return [int(positions.Lk)]
    if torch.compiler.is_compiling():
        return None
    lengths = call_lengths(positions, given[0].device).reshape(-1)
    try:
        return [int(length) for length in lengths]
    except RuntimeError:  # torch.func.vmap and the meta device refuse .item()
        return None


def angles(
    scheme: RoPE | Sandwich | TransformerXL | XPos,
    positions: Int[Tensor, "..."],
    head_dim: int,
    dtype: torch.dtype,
    length: int = 0,
) -> tuple[Float[Tensor, "*B L m"], Float[Tensor, "*B L m"]]:
    """Cosines and sines of position * f_m, by adding the angles of the position's bytes.

    Positions are [L] or [B, L], or [B, L, A], of which each pair takes its own axis.
    """
    tables = byte_angles(scheme, head_dim, dtype, length)
    cos_table, sin_table = (table.to(positions.device) for table in tables)
    if positions.ndim == 3:
        assert isinstance(scheme, RoPE)
        assert scheme.axes is not None
        positions = positions[..., list(scheme.axes.axis_of_pair())]

        def read(table: Tensor, byte: Tensor) -> Tensor:
            return table[byte, torch.arange(table.shape[-1], device=table.device)]
    else:
        positions = positions.unsqueeze(-1)

        def read(table: Tensor, byte: Tensor) -> Tensor:
            return table[byte.squeeze(-1)]

    distance_from_zero = positions.abs()
    cos, sin = torch.ones((), dtype=dtype), torch.zeros((), dtype=dtype)
    for place in range(BYTES):
        byte = (distance_from_zero >> (8 * place)) & 255
        cos_byte, sin_byte = read(cos_table[place], byte), read(sin_table[place], byte)
        cos, sin = cos * cos_byte - sin * sin_byte, sin * cos_byte + cos * sin_byte
    # What has more bytes is not a number, rather than another position's angle.
    beyond = distance_from_zero >> (8 * BYTES) != 0
    return cos.masked_fill(beyond, torch.nan), sin * positions.sign()


@constant
def byte_angles(
    scheme: RoPE | Sandwich | TransformerXL | XPos, head_dim: int, dtype: torch.dtype, length: int
) -> tuple[Tensor, Tensor]:
    """Cosines and sines [place, byte, m] of byte * 256**place * f_m."""
    frequencies = scheme.frequencies(head_dim, length)
    cos, sin = byte_tables(frequencies, str(dtype).removeprefix("torch."))
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
