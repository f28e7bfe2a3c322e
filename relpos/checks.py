"""Shape rules of the public functions and layers, decided once for both twins.

Letters: B batch, H heads, G key/value heads, L or Lq and Lk lengths, D model width, d head width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from relpos.errors import DistanceError, ShapeError
from relpos.schemes import Parameter, Scheme

__all__ = [
    "Sizes",
    "check_distances",
    "check_input",
    "check_mask",
    "check_params",
    "check_positions",
    "check_qkv",
]

Shape = tuple[int, ...]


class Sizes(NamedTuple):
    """The sizes of one attention call, by letter."""

    B: int
    H: int
    G: int
    Lq: int
    Lk: int
    d: int


def check_qkv(q: Shape, k: Shape, v: Shape, order: str) -> Sizes:
    """Read the sizes of q, k and v, whose axes stand in `order` ("BHLd" or "BLHd")."""
    written = "[" + ", ".join(order) + "]"
    for name, shape in (("q", q), ("k", k), ("v", v)):
        if len(shape) != 4:
            raise ShapeError(f"{name} has four axes {written}", got=list(shape), expected=written)
    axis = {letter: order.index(letter) for letter in order}
    sizes = Sizes(
        B=q[axis["B"]],
        H=q[axis["H"]],
        G=k[axis["H"]],
        Lq=q[axis["L"]],
        Lk=k[axis["L"]],
        d=q[axis["d"]],
    )
    if v != k:
        raise ShapeError("v has the shape of k", got=list(v), expected=list(k))
    for letter in "Bd":
        if q[axis[letter]] != k[axis[letter]]:
            raise ShapeError(
                f"q and k agree in {letter}, axes {written}",
                got=f"q {list(q)}, k {list(k)}",
                expected=f"{letter}={q[axis[letter]]} in both",
            )
    if sizes.G == 0 or sizes.H % sizes.G:
        raise ShapeError(
            f"the number of query heads H is a multiple of the key heads G, axes {written}",
            got=f"H={sizes.H}, G={sizes.G}",
            expected=f"G a divisor of {sizes.H}; are the axes in the order {written}?",
        )
    return sizes


def check_mask(mask: Shape, is_boolean: bool, sizes: Sizes) -> None:
    """A mask is boolean, True = may attend, and broadcasts to [B, H, Lq, Lk]."""
    full = (sizes.B, sizes.H, sizes.Lq, sizes.Lk)
    if not is_boolean:
        raise ShapeError(
            "a mask is boolean, True = may attend; additive float masks are not taken",
            got="another dtype",
            expected="bool (for an additive mask m: mask = m == 0)",
        )
    padded = (1,) * (4 - len(mask)) + mask
    if len(mask) > 4 or any(m not in (1, n) for m, n in zip(padded, full, strict=True)):
        raise ShapeError(
            "a mask broadcasts to [B, H, Lq, Lk]",
            got=list(mask),
            expected=f"{list(full)}, or 1 for any of these; padding [B, Lk] as "
            "mask[:, None, None, :]",
        )


def check_positions(name: str, positions: Shape, is_integer: bool, B: int, L: int) -> None:
    """Explicit positions are integers [L] or [B, L]."""
    if not is_integer:
        raise ShapeError(f"{name} are integers", got="another dtype", expected="int32 or int64")
    if positions not in ((L,), (B, L)):
        raise ShapeError(
            f"{name} have one entry per token",
            got=list(positions),
            expected=f"[L] = [{L}] or [B, L] = [{B}, {L}]",
        )


def check_params(table: tuple[Parameter, ...], given: Mapping[str, Shape]) -> None:
    """The parameters of a call are exactly the scheme's, each with its shape."""
    expected = {parameter.name: parameter.shape for parameter in table}
    if dict(given) != expected:
        raise ShapeError(
            "params hold exactly the scheme's parameters",
            got={name: list(shape) for name, shape in given.items()},
            expected={name: list(shape) for name, shape in expected.items()},
        )


def check_distances(scheme: Scheme, lowest: int, highest: int) -> None:
    """A distance beyond a table that may not clip is an error, never another row."""
    if scheme.limits is None:
        return
    least, most = scheme.limits
    if lowest < least or highest > most:
        beyond = lowest if lowest < least else highest
        raise DistanceError(
            f"{scheme.name} with clip=False has a row for the distances j - i from {least} to "
            f"{most} only",
            got=f"distance {beyond}",
            expected="shorter inputs, a larger table, or clip=True",
        )


def check_input(name: str, shape: Shape, embed_dim: int) -> None:
    """A layer's input is [B, L, D]."""
    if len(shape) == 3 and shape[2] == embed_dim:
        return
    hint = ""
    if len(shape) == 3 and shape[1] == embed_dim:
        hint = "; this looks like channels first [B, D, L]: swap the last two axes"
    raise ShapeError(
        f"{name} has three axes [B, L, D] with D={embed_dim}",
        got=list(shape),
        expected=f"[B, L, {embed_dim}]{hint}",
    )
