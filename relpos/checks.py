"""Shape rules of the public functions and layers, decided once for both twins.

Letters: B batch, H heads, G key/value heads, L or Lq and Lk lengths, D model width, d head width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from relpos.errors import DistanceError, SettingError, ShapeError
from relpos.schemes import NoPosition, Parameter, Scheme, XPos

__all__ = [
    "Sizes",
    "check_call",
    "check_distances",
    "check_dropout",
    "check_dtypes",
    "check_features",
    "check_input",
    "check_length_seen",
    "check_mask",
    "check_params",
    "check_position_limits",
    "check_position_range",
    "check_positions",
    "check_qkv",
    "check_spread",
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
    if 0 in q or 0 in k:
        raise ShapeError(
            f"q and k have no empty axis, axes {written}",
            got=f"q {list(q)}, k {list(k)}",
            expected="sizes >= 1",
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


def check_dtypes(q: str, k: str, v: str, floating: bool) -> None:
    """q, k and v share one floating dtype."""
    if not (q == k == v and floating):
        raise ShapeError(
            "q, k and v share one floating dtype",
            got=f"q {q}, k {k}, v {v}",
            expected="float64, float32, bfloat16 or float16 for all three",
        )


def check_mask(mask: Shape, dtype: str, sizes: Sizes) -> None:
    """A mask is boolean, True = may attend, with four axes that broadcast to [B, H, Lq, Lk].

    Fewer axes are refused: [B, Lk] and [B, Lq, Lk] would broadcast, to something else, whenever
    sizes happen to be equal.
    """
    full = (sizes.B, sizes.H, sizes.Lq, sizes.Lk)
    if not dtype.endswith("bool"):
        raise ShapeError(
            "a mask must be boolean, True = may attend",
            got=dtype,
            expected="bool: m != 0 of zeros and ones, m == 0 of an additive mask",
        )
    if len(mask) != 4 or any(m != 1 and m != n for m, n in zip(mask, full, strict=True)):
        raise ShapeError(
            "a mask must have four axes that broadcast to [B, H, Lq, Lk]",
            got=list(mask),
            expected=f"{list(full)}, or 1 for any of these; padding [B, Lk] as "
            "mask[:, None, None, :], pairs [Lq, Lk] as mask[None, None]",
        )


def check_positions(name: str, positions: Shape, dtype: str, B: int, L: int, axes: int) -> None:
    """Explicit positions are signed integers [L] or [B, L], or [B or 1, L, A] with A > 1 axes."""
    if dtype.removeprefix("torch.") not in ("int8", "int16", "int32", "int64"):
        raise ShapeError(f"{name} must be signed integers", got=dtype, expected="int32 or int64")
    # Compared one by one: a compiler's symbolic sizes are not found by `in`.
    shared = len(positions) == 1 and positions[0] == L
    per_row = len(positions) == 2 and positions[0] == B and positions[1] == L
    several = (
        len(positions) == 3
        and (positions[0] == 1 or positions[0] == B)
        and positions[1] == L
        and positions[2] == axes > 1
    )
    if not (shared or per_row or several):
        also = f", or [B or 1, L, A] = [{B} or 1, {L}, {axes}]" if axes > 1 else ""
        raise ShapeError(
            f"{name} have one entry per token",
            got=list(positions),
            expected=f"[L] = [{L}] or [B, L] = [{B}, {L}]{also}",
        )


def check_position_range(lowest: int, highest: int) -> None:
    """Differences of positions fit 32 bits."""
    if not -(2**30) < lowest <= highest < 2**30:
        raise ShapeError(
            "positions must lie strictly between -2**30 and 2**30",
            got=f"{lowest} to {highest}",
            expected="positions counted from nearer by",
        )


def check_length_seen(lengths: list[int] | None) -> list[int]:
    """The lengths of a call that frequencies depend on; None is one that compiled code hides."""
    if lengths is None:
        raise SettingError(
            "DynamicNTK takes its frequencies from the call's largest position, which must be seen",
            got="explicit positions whose values compiled code or vmap hides",
            expected="DynamicNTK(..., length=N), for every call the frequencies of a call of "
            "length N; or the default positions; or a call that is not compiled",
        )
    return lengths


def check_dropout(dropout: float) -> None:
    """A probability that leaves something."""
    if not 0.0 <= dropout < 1.0:
        raise SettingError(
            "dropout is the probability of dropping an attention weight",
            got=dropout,
            expected="0 <= dropout < 1",
        )


def check_params(table: tuple[Parameter, ...], given: Mapping[str, Shape], floating: bool) -> None:
    """The parameters of a call are exactly the scheme's, each real and with its shape."""
    if not floating:
        raise ShapeError(
            "params hold real floating numbers", got="another dtype", expected="float32, say"
        )
    expected = {parameter.name: parameter.shape for parameter in table}
    if dict(given) != expected:
        raise ShapeError(
            "params hold exactly the scheme's parameters",
            got={name: list(shape) for name, shape in given.items()},
            expected={name: list(shape) for name, shape in expected.items()},
        )


def check_features(
    scheme: Scheme,
    given: tuple[Shape | None, Shape | None],
    floating: bool,
    sizes: Sizes,
    order: str,
) -> None:
    """What a scheme reads of each token is given exactly where it asks for it, in the axes of q."""
    if not floating:
        raise ShapeError(
            "query_features and key_features hold real floating numbers",
            got="another dtype",
            expected="float32, say",
        )
    for name, shape, projection, L in (
        ("query_features", given[0], scheme.query_projection, sizes.Lq),
        ("key_features", given[1], scheme.key_projection, sizes.Lk),
    ):
        letters = {"B": sizes.B, "H": sizes.H, "L": L}
        if projection is None:
            expected = None
        else:
            letters["d"] = projection.width
            expected = tuple(letters[letter] for letter in order)
        if shape != expected:
            raise ShapeError(
                f"{name} are what {scheme.name} reads of each token and head, "
                f"axes [{', '.join(order.replace('d', 'e'))}]",
                got="none" if shape is None else list(shape),
                expected="none" if expected is None else list(expected),
            )


def check_position_limits(scheme: Scheme, lowest: int, highest: int) -> None:
    """A position beyond a grid is an error, never another cell."""
    if scheme.position_limits is None:
        return
    least, most = scheme.position_limits
    if lowest < least or highest > most:
        raise DistanceError(
            f"{scheme.name} has the positions from {least} to {most} only",
            got=f"position {lowest if lowest < least else highest}",
            expected="fewer tokens, or a larger grid",
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


def check_spread(scheme: XPos, lowest: int, highest: int) -> None:
    """The positions of one batch row lie as near to one another as the decay can be computed."""
    if highest - lowest > scheme.reach:
        raise DistanceError(
            f"{scheme.name} with scale_base={scheme.scale_base} and gamma={scheme.gamma} serves "
            f"positions of one row up to {scheme.reach} apart",
            got=f"positions {lowest} to {highest}",
            expected="shorter inputs, evicted tokens, or a larger scale_base",
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


def check_call(
    scheme: Scheme, *, cross: bool, positions: bool, key_positions: bool, cache: bool, lengths: bool
) -> None:
    """Which arguments of a layer call belong together; each flag says that one was given."""
    if cross and cache:
        raise ShapeError(
            "a cache holds the keys of self-attention",
            got="cache together with key_value",
            expected="one of them",
        )
    if cross and not isinstance(scheme, NoPosition) and not (positions and key_positions):
        raise ShapeError(
            f"cross-attention with {scheme.name} needs the positions of both sides",
            got=f"positions {'given' if positions else 'missing'}, "
            f"key_positions {'given' if key_positions else 'missing'}",
            expected="both, counted from a common origin; or NoPosition()",
        )
    if key_positions and not cross:
        raise ShapeError(
            "key_positions belong to key_value; in self-attention the keys stand where x does",
            got="key_positions without key_value",
            expected="positions alone",
        )
    if positions and cache:
        raise ShapeError(
            "a cache knows the positions of the tokens that follow",
            got="positions together with cache",
            expected="the cache alone",
        )
    if lengths and not cache:
        raise ShapeError(
            "lengths say how many tokens of each row enter a cache",
            got="lengths without cache",
            expected="a cache, or a mask[:, None, None, :] for padding",
        )
