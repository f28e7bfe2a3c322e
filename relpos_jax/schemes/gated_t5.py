"""GatedT5: T5's bias as a vector of width 1 per distance, which meets a gate per query."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from relpos.schemes import GatedT5
from relpos_jax.kernels.terms import Lowered, Product, Table, Terms
from relpos_jax.schemes.call import Call
from relpos_jax.schemes.t5 import bucket_rows

__all__ = ["gates", "lower"]


def lower(scheme: GatedT5, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k> + gate * bias_table[h, bucket(j - i)]."""
    assert call.query_features is not None
    first, rows = bucket_rows(scheme.num_buckets, scheme.max_distance, scheme.bidirectional)
    by_distance = jnp.take(params["bias_table"], rows, axis=-1, mode="clip")
    gate = gates(call.query_features, params["gate_scale"])
    product = Product(gate[..., None], Table(by_distance[..., None], first))
    return Lowered(call.q, call.k, Terms(call.scale, query=(product,)))


def gates(
    features: Float[Array, "B L H 8"], gate_scale: Float[Array, " H"]
) -> Float[Array, "B L H"]:
    """a * (c * gate_scale - 1) + 2, a and c the sigmoids of two sums of four features."""
    a = jax.nn.sigmoid(features[..., :4].sum(-1))
    c = jax.nn.sigmoid(features[..., 4:].sum(-1))
    return a * (c * gate_scale[None, None] - 1.0) + 2.0
