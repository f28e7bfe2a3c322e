"""Places counted by the content, for one head; `jax.vmap` lifts them.

gate[i,m]  = sigmoid(content[i,m]) for the keys m that i may attend to, else 0
place[i,j] = sum of gate[i,m] over the keys m that stand where j does or later
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from relpos_jax.kernels.positions import Positions
from relpos_jax.kernels.terms import Counted

__all__ = ["between_rows", "counted_scores", "places"]


def counted_scores(
    counted: Counted,
    q: Float[Array, "Lq d"],
    content: Float[Array, "Lq Lk"],
    mask: Bool[Array, "Lq Lk"] | None,
    positions: Positions,
) -> Float[Array, "Lq Lk"]:
    """scale * <q[i], the table at place[i,j]> for every pair."""
    products = counted.scale * (q @ counted.values.T)
    return between_rows(products, places(content, mask, positions))


def places(
    content: Float[Array, "Lq Lk"], mask: Bool[Array, "Lq Lk"] | None, positions: Positions
) -> Float[Array, "Lq Lk"]:
    """The place of every key, counted from the end."""
    gates = jax.nn.sigmoid(content)
    if mask is not None:
        gates = jnp.where(mask, gates, 0.0)
    if positions.key is None:
        return _sums_from(gates)
    order = jnp.argsort(positions.key)
    first = jnp.searchsorted(positions.key[order], positions.key)
    in_order = jnp.take(gates, order, axis=1, mode="clip")
    return jnp.take(_sums_from(in_order), first, axis=1, mode="clip")


def between_rows(
    products: Float[Array, "Lq N"], place: Float[Array, "Lq Lk"]
) -> Float[Array, "Lq Lk"]:
    """The products at whole places, and between them on straight lines; constant from N - 1 on."""
    last = products.shape[1] - 1
    below = jax.lax.stop_gradient(jnp.clip(jnp.floor(place), 0, last - 1))
    weight = jnp.where(place >= last, 1.0, place - below)
    row = below.astype(int)
    left, right = (jnp.take_along_axis(products, at, axis=1, mode="clip") for at in (row, row + 1))
    return (1 - weight) * left + weight * right


def _sums_from(gates: Float[Array, "Lq Lk"]) -> Float[Array, "Lq Lk"]:
    return jax.lax.cumsum(gates, axis=1, reverse=True)
