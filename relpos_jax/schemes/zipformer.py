"""Zipformer: encodings of compressed distances are projected to a table, for small queries."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from relpos.schemes import Zipformer
from relpos_jax.kernels.positions import distance_range
from relpos_jax.kernels.terms import Lowered, Product, Table, Terms
from relpos_jax.schemes.call import Call

__all__ = ["encodings", "lower"]


def lower(scheme: Zipformer, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k> + <query features, s(j - i) @ position_kernel>."""
    lowest, highest = scheme.listed(distance_range(call.positions))
    rows = jnp.asarray(encodings(scheme, lowest, highest).astype(call.q.dtype))
    table = jnp.einsum("ne,hef->hnf", rows, params["position_kernel"])
    product = Product(call.query_features, Table(table, lowest))
    return Lowered(call.q, call.k, Terms(call.scale, query=(product,)))


def encodings(scheme: Zipformer, lowest: int, highest: int) -> Float[np.ndarray, "N e"]:
    """s(x) for every distance from the lowest to the highest, in float64 on the host."""
    x, c = np.arange(lowest, highest + 1.0), scheme.width**0.5
    y = c * np.sign(x) * np.log1p(np.abs(x) / c)
    a = np.arctan(2 * np.pi * y / (scheme.length_factor * scheme.width))
    rows = np.ones((len(x), scheme.width))
    for m in range(1, scheme.width // 2 + 1):
        rows[:, 2 * m - 2] = np.cos(m * a)
        if 2 * m < scheme.width:
            rows[:, 2 * m - 1] = np.sin(m * a)
    return rows
