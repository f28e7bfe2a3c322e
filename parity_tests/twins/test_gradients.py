"""Gradients of tables: sums over diagonals, deterministic, and no large tensor on the way."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import relpos_jax
import relpos_torch
from parity_tests.twins.twin import draw, draw_params
from relpos import T5, NoPosition, RoPE, Scheme, Shaw, Windowed

SCHEMES = [NoPosition(), Shaw(3, 2), Windowed(3, 2), T5(), RoPE("half")]


@pytest.mark.parametrize(
    ("reach", "counts"), [(4, [1, 2, 3, 4, 5, 4, 3, 2, 1]), (2, [6, 4, 5, 4, 6])]
)
def test_a_row_collects_one_share_per_pair_that_reads_it(
    twin: Any, reach: int, counts: list[int]
) -> None:
    # With no scores and L values, every weight is 1/L: a row's gradient is the number of its pairs.
    L = 5
    scheme = Shaw(reach, reach, keys=False)
    zeros = np.zeros((1, 1, L, 1))
    params = {"value_table": np.zeros((1, 2 * reach + 1, 1))}
    cotangent = np.full((1, 1, L, 1), float(L))
    gradient = twin.gradients(scheme, params, zeros, zeros, zeros, cotangent=cotangent)
    # The weights are rounded fifths; the counts are whole.
    np.testing.assert_array_equal(np.round(gradient["value_table"][0, :, 0], 9), counts)


@pytest.mark.parametrize("explicit", [False, True])
def test_two_runs_give_the_same_bits(twin: Any, explicit: bool) -> None:
    H, L, d = 3, 33, 8
    scheme = Shaw(3, 2)
    q, k, v = (draw(n, 2, H, L, d, dtype=np.float32) for n in range(3))
    params = draw_params(scheme, H, d, np.float32)
    at = np.random.default_rng(1).permutation(L)
    options = {"query_positions": at, "key_positions": at} if explicit else {}
    first, second = (
        twin.gradients(scheme, params, q, k, v, cotangent=np.ones_like(q), **options)
        for _ in range(2)
    )
    for name, gradient in first.items():
        np.testing.assert_array_equal(gradient, second[name])


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_no_array_of_pairs_times_width_exists_in_jax(scheme: Scheme) -> None:
    B, L, H, d = 1, 67, 2, 16
    params = {n: jnp.asarray(a) for n, a in draw_params(scheme, H, d).items()}
    q = jnp.zeros((B, L, H, d))

    def loss(q: Any, params: Any) -> Any:
        return relpos_jax.attention(q, q, q, scheme, params).sum()

    jaxpr = jax.make_jaxpr(jax.value_and_grad(loss, argnums=(0, 1)))(q, params)
    largest = max(_sizes(jaxpr.jaxpr))
    # By distance there are 2L columns, by pair L; an [L, L, d] array would be eight times that.
    assert largest <= B * H * L * 2 * L
    assert L * L * d > B * H * L * 2 * L


def _sizes(jaxpr: Any) -> list[int]:
    """Sizes of all arrays in a program, inner programs included."""
    sizes = [0]
    for equation in jaxpr.eqns:
        sizes += [var.aval.size for var in equation.outvars if hasattr(var.aval, "size")]
        for inner in jax.tree.leaves(
            equation.params, is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")
        ):
            if hasattr(inner, "jaxpr"):
                sizes += _sizes(inner.jaxpr)
            elif hasattr(inner, "eqns"):
                sizes += _sizes(inner)
    return sizes


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_no_tensor_of_pairs_times_width_exists_in_torch(scheme: Scheme) -> None:
    B, L, H, d = 1, 67, 2, 16
    params = {n: torch.tensor(a).requires_grad_() for n, a in draw_params(scheme, H, d).items()}
    q = torch.zeros(B, H, L, d, dtype=torch.float64, requires_grad=True)
    sizes: list[int] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
            out = function(*args, **(kwargs or {}))
            for leaf in torch.utils._pytree.tree_leaves(out):
                if isinstance(leaf, torch.Tensor):
                    sizes.append(leaf.numel())
            return out

    with Watch():
        relpos_torch.attention(q, q, q, scheme, params).sum().backward()
    assert max(sizes) <= B * H * L * 2 * L
    assert q.grad is not None


def test_the_largest_array_would_be_noticed() -> None:
    jaxpr = jax.make_jaxpr(jax.jit(lambda q, t: jnp.einsum("id,ijd->ij", q, t[None] + q[:, None])))
    assert max(_sizes(jaxpr(jnp.zeros((31, 16)), jnp.zeros((31, 16))).jaxpr)) == 31 * 31 * 16
