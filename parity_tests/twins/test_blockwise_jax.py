"""The kernel of JAX that works block by block: what it gives, draws, and never holds."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import relpos_jax
from parity_tests.twins.twin import Arrays, draw, draw_params, passes
from relpos import T5, CoPE, NoPosition, Scheme, SettingError, Shaw, ShawBoth, oracle
from relpos.parity import compare, compare_exact
from relpos.parity.cases import Case
from relpos.parity.jobs import Job, judge
from relpos.parity.roster import ROSTER
from relpos.parity.sides.jax_side import JaxSide
from relpos_jax.kernels.blocks import block_rows, plan_blocks


def attention(scheme: Scheme, q: Any, params: Any, **options: Any) -> Any:
    """Of queries that are keys and values too, [B, L, H, d]."""
    options = {"implementation": "blockwise"} | options
    return relpos_jax.attention(q, q, q, scheme, params, **options)


def inputs(scheme: Scheme, L: int, H: int = 2, d: int = 3) -> tuple[Any, Arrays]:
    """Queries [1, L, H, d] and parameters."""
    params = draw_params(scheme, H, d)
    return jnp.asarray(draw(1, 1, L, H, d)), {n: jnp.asarray(a) for n, a in params.items()}


# Both ends see all distances and the others one key: the oracle is slow.
@pytest.mark.parametrize(
    ("L", "causal"), [(1, False), (127, True), (129, False), (1025, True)], ids=str
)
def test_odd_lengths_stay_within_the_budget(L: int, causal: bool) -> None:
    row = ROSTER["Shaw"]
    case = Case(f"{L} rows", row.scheme, B=1, H=1, G=1, Lq=L, Lk=L, d=3, causal=causal, mask="ends")
    job = Job(row, "attention", case, "float64", "jax", "jax", "blockwise")
    check, answer = job.run(JaxSide())
    assert check.problem is None
    for comparison in judge(job, job.reference(), answer):
        passes(comparison)


def test_blocks_cover_every_row_once_and_see_every_key_they_may() -> None:
    for Lq, Lk, rows in ((13, 13, 4), (13, 17, 5), (13, 5, 4), (12, 12, 4), (3, 9, 256)):
        plan = plan_blocks(Lq, Lk, rows, in_order=True)
        keys = [seen for count, seen in plan.stretches for _ in range(count)]
        assert len(keys) == math.ceil(Lq / plan.rows)
        for number, seen in enumerate(keys):
            last = min((number + 1) * plan.rows, Lq) - 1
            assert max(last + Lk - Lq + 1, 1) <= seen <= Lk
        everything = plan_blocks(Lq, Lk, rows, in_order=False)
        assert everything.stretches == ((math.ceil(Lq / everything.rows), Lk),)


def test_dropped_weights_are_the_same_in_both_passes_and_for_every_block_size() -> None:
    L, dropout = 13, 0.4
    x, v = jnp.asarray(draw(1, 1, L, 1, L)), jnp.eye(L)[None, :, None]

    def weights(q: Any, key: Any) -> Any:
        options = {"dropout": dropout, "dropout_key": key, "implementation": "blockwise"}
        return relpos_jax.attention(q, x, v, NoPosition(), **options)

    key, cotangent = jax.random.key(3), draw(5, 1, L, 1, L)
    with block_rows(4):
        drawn, pull = jax.vjp(lambda q: weights(q, key), x)
        call = jax.jit(weights)
        again, other = call(x, key), call(x, jax.random.key(4))
    kept = np.asarray(drawn != 0)
    passes(compare_exact(kept, np.asarray(again != 0), what="kept weights"))
    assert (kept != np.asarray(other != 0)).any()
    with block_rows(6):
        drawn = jax.jit(lambda q: weights(q, key))(x)
        passes(compare_exact(kept, np.asarray(drawn != 0), what="kept weights"))
    # The weights come out as they are, so that dropping them is dropping entries of the cotangent.
    by_weight = np.where(kept, cotangent / (1.0 - dropout), 0.0)
    q, eye, by_weight = (np.asarray(a).swapaxes(1, 2) for a in (x, v, by_weight))
    expected = oracle.attention(NoPosition(), {}, q, q, eye, cotangent=by_weight)
    (gradient,) = pull(jnp.asarray(cotangent))
    passes(compare(expected.gradients["q"], np.asarray(gradient).swapaxes(1, 2)))


def test_as_many_weights_are_dropped_as_asked_for_and_none_twice_as_likely() -> None:
    L, dropout = 64, 0.25
    options = {"dropout": dropout, "dropout_key": jax.random.key(0)}
    eye = jnp.broadcast_to(jnp.eye(L)[None, :, None], (1, L, 4, L))
    zeros = jnp.zeros((1, L, 4, L))
    drawn = relpos_jax.attention(
        zeros, zeros, eye, NoPosition(), implementation="blockwise", **options
    )
    kept = np.asarray(drawn != 0)
    # Six standard deviations of as many draws.
    for axis, draws in ((None, 4 * L * L), ((0, 1, 3), L * L), ((0, 1, 2), 4 * L)):
        bound = 6 * math.sqrt(dropout * (1 - dropout) / draws)
        assert (np.abs(kept.mean(axis) - (1 - dropout)) < bound).all()
    heads = kept[0].swapaxes(0, 1)
    assert all((heads[0] != head).any() for head in heads[1:])


@pytest.mark.parametrize("L", [96, 384])
def test_no_array_is_larger_than_a_block(L: int) -> None:
    # Every kind of term that is a function of distance; 16 rows at a time.
    rows, H, d = 16, 2, 4
    for scheme in (Shaw(L, L), Shaw(2, 2), ShawBoth(3, 3), T5()):
        q, params = inputs(scheme, L, H, d)

        def gradients(q: Any, params: Any, scheme: Scheme = scheme) -> Any:
            out, pull = jax.vjp(lambda q, params: attention(scheme, q, params), q, params)
            return pull(out)

        with block_rows(rows):
            jaxpr = jax.make_jaxpr(gradients)(q, params).jaxpr
        sizes = [(math.prod(a.shape), str(a)) for a in arrays(jaxpr)]
        largest = max(sizes)
        # Rows by distances, what is cut off at its end, or all of an input.
        blocks = 3 * rows * (L + 2 * rows)
        assert largest[0] <= max(blocks, (2 * L + 1) * H * d), largest


def arrays(jaxpr: Any) -> Iterator[Any]:
    """The kinds of all arrays that a program computes, those of its inner programs too."""
    for equation in jaxpr.eqns:
        yield from (out.aval for out in equation.outvars)
        for inner in jax.tree.leaves(
            equation.params, is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")
        ):
            if hasattr(inner, "jaxpr"):
                inner = inner.jaxpr
            if hasattr(inner, "eqns"):
                yield from arrays(inner)


def test_the_search_for_large_arrays_finds_those_of_the_dense_kernel() -> None:
    q, params = inputs(Shaw(3, 3), 96)
    program = jax.make_jaxpr(lambda q: attention(Shaw(3, 3), q, params, implementation="dense"))(q)
    assert max(math.prod(a.shape) for a in arrays(program.jaxpr)) >= 96 * 96 * 2


def test_the_same_call_gives_the_same_bits() -> None:
    q, params = inputs(Shaw(2, 1), 13)

    @jax.jit
    def gradients(q: Any, params: Any) -> Any:
        call = functools.partial(attention, Shaw(2, 1))
        return jax.vjp(call, q, params)[1](q)

    with block_rows(4):
        jax.tree.map(np.testing.assert_array_equal, gradients(q, params), gradients(q, params))


def test_gradients_recomputed_and_mapped_stay_within_the_budget() -> None:
    scheme, L = Shaw(2, 1), 13
    x, params = inputs(scheme, L)
    q = np.asarray(x).swapaxes(1, 2)
    tables = {name: np.asarray(table) for name, table in params.items()}
    expected = oracle.attention(scheme, tables, q, q, q, causal=True, cotangent=q).gradients

    def call(q: Any, params: Any) -> Any:
        kernel = {"causal": True, "implementation": "blockwise"}
        return relpos_jax.attention(q, x, x, scheme, params, **kernel)

    def mapped(q: Any, params: Any) -> Any:
        return jax.vmap(call, (0, None))(q[None], params)[0]

    for form in (jax.checkpoint(call), mapped):
        with block_rows(4):
            by_query, by_param = jax.jit(lambda q, p, f=form: jax.vjp(f, q, p)[1](x))(x, params)
        passes(compare(expected["q"], np.asarray(by_query).swapaxes(1, 2)))
        for name, gradient in by_param.items():
            passes(compare(expected[name], np.asarray(gradient)))


@pytest.mark.parametrize("scheme", [Shaw(2, 1), ShawBoth(1, 2)], ids=lambda scheme: scheme.name)
def test_all_heads_at_once_as_accelerators_have_them_stay_within_the_budget(
    scheme: Scheme, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    row = next(row for row in ROSTER.values() if row.scheme.name == scheme.name)
    case = Case("at once", scheme, H=4, G=2, Lq=13, Lk=29, d=3, causal=True, mask="full")
    job = Job(row, "attention", case, "float64", "jax", "jax", "blockwise")
    check, answer = job.run(JaxSide())
    assert check.problem is None
    for comparison in judge(job, job.reference(), answer):
        passes(comparison)


def test_counted_places_are_refused_by_name_and_served_by_auto() -> None:
    q, params = inputs(CoPE(4), 5)
    with pytest.raises(SettingError, match=r"no places counted by the content.*dense"):
        attention(CoPE(4), q, params)
    assert jnp.isfinite(attention(CoPE(4), q, params, implementation="auto")).all()


def test_a_row_that_sees_nothing_is_zero_and_so_is_its_gradient() -> None:
    scheme, L = Shaw(2, 1), 13
    q, params = inputs(scheme, L)
    mask = np.ones((1, 1, L, L), bool)
    mask[..., 6, :] = False
    with block_rows(4), jax.debug_nans(True), jax.debug_infs(True):
        out, pull = jax.vjp(lambda q, k: attention_of(scheme, q, k, params, mask), q, q)
        by_query, by_key = pull(jnp.ones_like(out))
    assert (out[:, 6] == 0).all()
    assert (by_query[:, 6] == 0).all()
    assert (out[:, 7] != 0).all()
    assert (by_key != 0).all()


def attention_of(scheme: Scheme, q: Any, k: Any, params: Any, mask: Any) -> Any:
    """Of queries and keys, which are values too."""
    kernel = {"mask": jnp.asarray(mask), "implementation": "blockwise"}
    return relpos_jax.attention(q, k, k, scheme, params, **kernel)
