"""ShawBoth: one table by distance meets the queries and the keys."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from relpos.schemes import ShawBoth
from relpos_jax.kernels.terms import Lowered, Product, Table, Terms
from relpos_jax.schemes.call import Call
from relpos_jax.schemes.shaw import beyond

__all__ = ["lower"]


def lower(scheme: ShawBoth, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * (<q, k> + <q, K[clip(j - i)]> + <k, K[clip(j - i)]>)."""
    table = Table(params["key_table"], -scheme.left)
    per_group = call.q.shape[2] // call.k.shape[2]
    of_keys = Product(jnp.repeat(call.k, per_group, axis=2), table, call.scale)
    terms = Terms(
        call.scale,
        query=(Product(call.q, table, call.scale),),
        key=(of_keys,),
        bias=() if scheme.clip else beyond(scheme, call),
    )
    return Lowered(call.q, call.k, terms)
