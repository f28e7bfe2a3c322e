"""XPos: q and k are rotated, and scaled by inverse powers of their positions; no term is left."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from relpos.checks import check_spread
from relpos.rotation import BYTES, byte_powers
from relpos.schemes import XPos
from relpos_torch.constants import constant
from relpos_torch.kernels.positions import Positions
from relpos_torch.kernels.terms import Lowered, Terms
from relpos_torch.schemes.call import Call
from relpos_torch.schemes.rope import angles, rotate

__all__ = ["byte_decays", "decay", "lower", "middle", "seen_extent"]


def lower(scheme: XPos, params: Mapping[str, Tensor], call: Call) -> Lowered:
    """score = scale * <z ** ((i - c) / scale_base) R(i) q, z ** ((c - j) / scale_base) R(j) k>."""
    q, k, positions = call.q, call.k, call.positions
    extent = seen_extent(positions)
    if extent is not None:
        check_spread(scheme, *extent)
    center, beyond = middle(scheme, positions, q.device)
    query, key = positions.tensors(q.device)
    # Once for both: the compiler takes a constant that is a single tensor only once.
    powers = byte_decays(scheme, q.shape[-1], q.dtype).to(q.device)

    def turned(x: Tensor, at: Tensor, steps: Tensor) -> Tensor:
        factor = decay(powers, steps).masked_fill(beyond, torch.nan)
        cos, sin = angles(scheme, at, x.shape[-1], x.dtype)
        return rotate(x, cos * factor, sin * factor, scheme.layout)

    return Lowered(
        turned(q, query, query - center), turned(k, key, center - key), Terms(call.scale)
    )


def middle(
    scheme: XPos, positions: Positions, device: torch.device
) -> tuple[Int[Tensor, "*rows 1"], Bool[Tensor, "*rows 1 1"]]:
    """The middle of each row's positions, and whether they lie too far apart."""
    query, key = positions.tensors(device)
    lowest = torch.minimum(query.amin(-1), key.amin(-1))
    highest = torch.maximum(query.amax(-1), key.amax(-1))
    beyond = highest - lowest > scheme.reach
    return ((lowest + highest) // 2)[..., None], beyond[..., None, None]


def seen_extent(positions: Positions) -> tuple[int, int] | None:
    """The lowest and highest position of the row with the widest spread; None where unseen."""
    if positions.query is None or positions.key is None:
        return min(positions.Lk - positions.Lq, 0), positions.Lk - 1
    if torch.compiler.is_compiling():
        return None
    query, key = positions.tensors(positions.query.device)
    lowest = torch.minimum(query.amin(-1), key.amin(-1)).reshape(-1)
    highest = torch.maximum(query.amax(-1), key.amax(-1)).reshape(-1)
    try:
        widest = int((highest - lowest).argmax())
        return int(lowest[widest]), int(highest[widest])
    except RuntimeError:  # torch.func.vmap and the meta device refuse .item()
        return None


def decay(
    powers: Float[Tensor, "places 256 m"], steps: Int[Tensor, "*rows L"]
) -> Float[Tensor, "*rows L m"]:
    """z_m ** (steps / scale_base), by multiplying the powers of the bytes of abs(steps)."""
    count = steps.abs()
    product = torch.ones((), dtype=powers.dtype, device=powers.device)
    for place in range(BYTES):
        product = product * powers[place][(count >> (8 * place)) & 255]
    return torch.where((steps < 0).unsqueeze(-1), 1.0 / product, product)


@constant
def byte_decays(scheme: XPos, head_dim: int, dtype: torch.dtype) -> Tensor:
    """z_m ** (byte * 256**place / scale_base), [place, byte, m]."""
    return torch.tensor(byte_powers(scheme.rates(head_dim), str(dtype).removeprefix("torch.")))
