"""DeBERTa, GatedT5 and LowRankBank where a number's type was fixed, or a term stood alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx

import relpos_jax.nnx
import relpos_torch
from relpos import DeBERTa, GatedT5, LowRankBank, Scheme, SettingError
from relpos.schemes import scheme_from_dict

SCHEMES = [DeBERTa(12, 12, buckets=8), GatedT5(10, 13), LowRankBank(rank=5, extent=4)]
each_scheme = pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)


@each_scheme
def test_a_torch_layer_in_bfloat16_computes_nothing_else(scheme: Scheme) -> None:
    layer = relpos_torch.RelativeAttention(12, 3, scheme, dtype=torch.bfloat16)
    x = torch.ones(2, 5, 12, dtype=torch.bfloat16, requires_grad=True)
    out = layer(x)
    out.sum().backward()
    gradients = [tensor.grad for tensor in (x, *layer.parameters())]
    assert {out.dtype, *(None if g is None else g.dtype for g in gradients)} == {torch.bfloat16}


@each_scheme
def test_a_flax_layer_in_bfloat16_computes_nothing_else(scheme: Scheme) -> None:
    layer = relpos_jax.nnx.RelativeAttention(
        12, 3, scheme, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0)
    )
    graph, state = nnx.split(layer)

    def call(state: Any, x: Any) -> Any:
        return nnx.merge(graph, state)(x)

    @jax.jit
    def results(state: Any, x: Any) -> Any:
        out, back = jax.vjp(call, state, x)
        return out, back(out)

    leaves = jax.tree.leaves(results(state, jnp.ones((2, 5, 12), jnp.bfloat16)))
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype(jnp.bfloat16)}


def test_an_unknown_attention_type_is_refused() -> None:
    with pytest.raises(SettingError, match="must name the scheme and every field once"):
        scheme_from_dict({**DeBERTa(12).to_dict(), "p2p": True})
    with pytest.raises(SettingError, match=r"DeBERTa\.p2c must have its declared type"):
        DeBERTa(12, p2c="p2p")  # type: ignore[arg-type]
