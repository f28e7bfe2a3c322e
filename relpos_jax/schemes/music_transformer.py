"""MusicTransformer: a table by distance with a zero row for keys to come, or at both ends."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from relpos.schemes import MusicTransformer
from relpos_jax.kernels.terms import Lowered, Product, Table, Terms
from relpos_jax.schemes.call import Call

__all__ = ["lower"]


def lower(scheme: MusicTransformer, params: Mapping[str, Array], call: Call) -> Lowered:
    """score = scale * <q, k + E(j - i)>; E is 0 for j > i."""
    zeros_before = 1 if scheme.beyond == "zero" else 0
    rows = jnp.pad(params["key_table"], ((0, 0), (zeros_before, 1), (0, 0)))
    product = Product(call.q, Table(rows, -scheme.reach - zeros_before), call.scale)
    return Lowered(call.q, call.k, Terms(call.scale, query=(product,)))
