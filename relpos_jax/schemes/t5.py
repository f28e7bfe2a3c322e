"""T5: the bucket table, read at the bucket of every distance that has one of its own."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from relpos.distance import t5_row_map
from relpos.schemes import T5
from relpos_jax.kernels.terms import Lowered, Table, Terms
from relpos_jax.schemes.call import Call

__all__ = ["bucket_rows", "lower"]


def lower(scheme: T5, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k> + bias_table[h, bucket(j - i)]."""
    bias_table = params["bias_table"]
    first, rows = bucket_rows(scheme.num_buckets, scheme.max_distance, scheme.bidirectional)
    by_distance = jnp.take(bias_table, rows, axis=-1, mode="clip")
    return Lowered(call.q, call.k, Terms(call.scale, bias=(Table(by_distance, first),)))


def bucket_rows(num_buckets: int, max_distance: int, bidirectional: bool) -> tuple[int, Array]:
    """The first distance with a bucket of its own, and the bucket of each distance from there."""
    buckets = t5_row_map(num_buckets, max_distance, bidirectional)
    return buckets.first, jnp.asarray(buckets.rows)
