"""Gradients of tables: sums over diagonals, deterministic, and no large tensor on the way."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import relpos_jax
import relpos_torch
from parity_tests.twins.twin import draw, draw_params, passes
from relpos import T5, MusicTransformer, Scheme, Shaw
from relpos.distance import t5_bucket
from relpos.oracle import Estimate
from relpos.parity import compare
from relpos.parity.cases import Case, Inputs
from relpos.parity.roster import FIRST_ROWS

#: The first row of each scheme; those of a grid with one as long as the other inputs.
SCHEMES = [
    dataclasses.replace(row.scheme, height=67, width=1)
    if row.scheme.position_limits
    else row.scheme
    for row in FIRST_ROWS.values()
    # A network is asked for every pair: it depends on more than the distance.
    if row.scheme.name != "Fire"
]


def long_inputs(scheme: Scheme, L: int, d: int) -> Inputs:
    """One row of self-attention, with two heads."""
    return Case("long", scheme, B=1, H=2, G=2, Lq=L, Lk=L, d=d).inputs("float64")


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


@pytest.mark.parametrize("L", [129, 1025])
def test_a_bias_has_its_gradient_at_lengths_that_are_no_multiple_of_a_block(
    twin: Any, L: int
) -> None:
    scheme, H, d = T5(), 1, 3
    q, k, v, cotangent = (draw(n, 1, H, L, d) for n in range(4))
    params = draw_params(scheme, H, d)
    distance = np.arange(L) - np.arange(L)[:, None]
    rows = t5_bucket(distance, num_buckets=32, max_distance=128, bidirectional=True).reshape(-1)
    # The plain way: a bias for every pair, and its gradient summed by bucket.
    bias = torch.tensor(params["bias_table"][:, rows].reshape(1, H, L, L), requires_grad=True)
    scores = torch.tensor(q) @ torch.tensor(k).mT + bias
    weights = scores.softmax(-1)
    (weights @ torch.tensor(v)).backward(torch.tensor(cotangent))
    share = np.abs(cotangent) @ np.abs(v).swapaxes(-1, -2)
    attended = weights.detach().numpy()
    size = attended * (share + (attended * share).sum(-1, keepdims=True))

    def by_bucket(pairs: Any) -> Any:
        return np.stack([np.bincount(rows, head.reshape(-1), 32) for head in pairs[0]])

    # Either way some 4 L roundings meet in a number, each at most of the size of all that is added.
    truth = Estimate(by_bucket(bias.grad.numpy()), 8 * L * 2.0**-53 * by_bucket(size))
    found = twin.gradients(scheme, params, q, k, v, cotangent=cotangent)["bias_table"]
    passes(compare(truth, found))
    assert (np.delete(found, 16, 1) != 0).all()


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
    L, H, d = 67, 2, 16
    inputs = long_inputs(scheme, L, d)

    def loss(tokens: Any, params: Any) -> Any:
        return relpos_jax.attention(**tokens, scheme=scheme, params=params).sum()

    tokens = {n: jnp.asarray(a.swapaxes(1, 2)) for n, a in inputs.tokens.items()}
    params = {n: jnp.asarray(a) for n, a in inputs.params.items()}
    jaxpr = jax.make_jaxpr(jax.value_and_grad(loss, argnums=(0, 1)))(tokens, params)
    largest = max(_sizes(jaxpr.jaxpr))
    # By distance there are 2L columns, by pair L; an [L, L, d] array would be four times that.
    assert largest <= H * L * 2 * L
    assert L * L * d > H * L * 2 * L


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
    assert max(torch_sizes(scheme, 67, 16)) <= 2 * 67 * 2 * 67


@pytest.mark.parametrize("scheme", [Shaw(15, 15), MusicTransformer(511)], ids=lambda s: s.name)
def test_a_thousand_tokens_of_width_64_need_no_tensor_of_pairs_times_width(scheme: Scheme) -> None:
    assert max(torch_sizes(scheme, 1024, 64)) <= 2 * 1024 * 2 * 1024


def torch_sizes(scheme: Scheme, L: int, d: int) -> list[int]:
    """Numbers in each tensor that is made forwards and backwards."""
    inputs = long_inputs(scheme, L, d)
    tokens, params = (
        {n: torch.tensor(a).requires_grad_() for n, a in arrays.items()}
        for arrays in (inputs.tokens, inputs.params)
    )
    sizes: list[int] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
            out = function(*args, **(kwargs or {}))
            for leaf in torch.utils._pytree.tree_leaves(out):
                if isinstance(leaf, torch.Tensor):
                    sizes.append(leaf.numel())
            return out

    with Watch():
        relpos_torch.attention(**tokens, scheme=scheme, params=params).sum().backward()
    assert all(tensor.grad is not None for tensor in tokens.values())
    return sizes


def test_the_largest_array_would_be_noticed() -> None:
    jaxpr = jax.make_jaxpr(jax.jit(lambda q, t: jnp.einsum("id,ijd->ij", q, t[None] + q[:, None])))
    assert max(_sizes(jaxpr(jnp.zeros((31, 16)), jnp.zeros((31, 16))).jaxpr)) == 31 * 31 * 16
