"""BEiT: an entry per pair of positions, for the class token stands on no grid."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from relpos.schemes import BEiT
from relpos_jax.kernels.terms import Lowered, PairBias, Terms
from relpos_jax.schemes.call import Call
from relpos_jax.schemes.grid import beyond

__all__ = ["entries", "lower"]


def lower(scheme: BEiT, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k> + bias_table[h, entry of query and key]."""

    def bias(
        tables: tuple[Array, ...], query: Int[Array, " Lq"], key: Int[Array, " Lk"]
    ) -> Float[Array, "Lq Lk"]:
        # Positions off the grid have no entry; `beyond` answers for them.
        return jnp.take(tables[0], entries(scheme, query, key), mode="clip")

    terms = Terms(
        call.scale,
        bias=beyond(scheme, call),
        pair_bias=PairBias(bias, (params["bias_table"],)),
    )
    return Lowered(call.q, call.k, terms)


def entries(scheme: BEiT, query: Int[Array, " Lq"], key: Int[Array, " Lk"]) -> Int[Array, "Lq Lk"]:
    """The table's row for every pair of positions."""
    height, width = scheme.height, scheme.width
    offsets = (2 * height - 1) * (2 * width - 1)
    of_class_i, of_class_j = query[:, None] == 0, key[None, :] == 0
    (yi, xi), (yj, xj) = jnp.divmod(query - 1, width), jnp.divmod(key - 1, width)
    dy, dx = yj[None, :] - yi[:, None], xj[None, :] - xi[:, None]
    return jnp.select(
        [of_class_i & of_class_j, of_class_j, jnp.broadcast_to(of_class_i, dy.shape)],
        [offsets + 2, offsets + 1, offsets],
        (dy + height - 1) * (2 * width - 1) + dx + width - 1,
    )
