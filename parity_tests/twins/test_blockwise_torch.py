"""The kernel that works block by block: what it gives, what it draws, and what it never holds."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

import relpos_torch
from parity_tests.twins.twin import Arrays, TorchTwin, draw, draw_params, passes
from relpos import (
    T5,
    ALiBi,
    CoPE,
    Fire,
    NoPosition,
    Scheme,
    SettingError,
    Shaw,
    ShawBoth,
    oracle,
)
from relpos.parity import compare, reference
from relpos.parity.cases import Case
from relpos_torch.kernels import choose_kernel, workers
from relpos_torch.kernels.skewed import block_rows, blocks

TWIN = TorchTwin()


def inputs(scheme: Scheme, L: int, H: int = 2, d: int = 3) -> tuple[torch.Tensor, Any]:
    """Queries [1, H, L, d] and parameters, all with gradients."""
    arrays: Arrays = {"q": draw(1, 1, H, L, d), **draw_params(scheme, H, d)}
    tensors = {name: TWIN.array(array).requires_grad_() for name, array in arrays.items()}
    return tensors.pop("q"), tensors


def attention(scheme: Scheme, q: torch.Tensor, params: Any, **options: Any) -> torch.Tensor:
    """Of queries that are keys and values too."""
    options = {"implementation": "blockwise"} | options
    return relpos_torch.attention(q, q, q, scheme, params, **options)


def gradients(scheme: Scheme, q: torch.Tensor, params: Any, **options: Any) -> list[torch.Tensor]:
    """Output, then the gradients of its sum of squares."""
    out = attention(scheme, q, params, **options)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), [q, *params.values()])]


@pytest.mark.parametrize(
    ("L", "causal", "rows"),
    [(1, False, 128), (127, True, 50), (129, False, 128), (129, True, 100), (1025, True, 128)],
)
def test_odd_lengths_stay_within_the_budget(L: int, causal: bool, rows: int) -> None:
    scheme, H, d = Shaw(3, 2), 2, 3
    params = draw_params(scheme, H, d)
    q, k, v, cotangent = (draw(n, 1, H, L, d) for n in range(4))
    # A few queries at the ends of blocks and between, which see a few keys: the oracle is slow.
    some = [n for n in (0, 1, 63, 127, 128, 1023, 1024) if n < L]
    mask = np.zeros((1, 1, L, L), bool)
    mask[..., np.ix_(some, some)[0], np.ix_(some, some)[1]] = True
    expected = oracle.attention(
        scheme, params, q, k, v, mask=mask, causal=causal, cotangent=cotangent
    )
    options = {"mask": mask, "causal": causal, "implementation": "blockwise"}
    with block_rows(rows):
        passes(compare(expected.output, TWIN.attention(scheme, params, q, k, v, **options)))
        found = TWIN.gradients(scheme, params, q, k, v, cotangent=cotangent, **options)
    for name, estimate in expected.gradients.items():
        passes(compare(estimate, found[name], what=name))


@pytest.mark.parametrize("rows", [1, 2, 3, 128])
def test_block_sizes_that_do_not_divide_change_nothing(rows: int) -> None:
    # Tables that end inside of a block, before it, and beyond all of it; for queries and for keys.
    for scheme in (Shaw(1, 0), ShawBoth(2, 3)):
        case = Case("cross", scheme, Lq=5, Lk=7)
        expected = reference.result("attention", case, "float64")
        given = case.inputs("float64")
        qkv = (given.q, given.k, given.v)
        with block_rows(rows):
            found = TWIN.gradients(
                scheme, given.params, *qkv, cotangent=given.cotangent, implementation="blockwise"
            )
        for name, estimate in expected.gradients.items():
            passes(compare(estimate, found[name], what=name))


def test_blocks_cover_every_row_once_and_see_every_key_they_may() -> None:
    for Lq, Lk, rows in ((13, 13, 4), (13, 17, 5), (13, 5, 4), (12, 12, 4), (3, 9, 256)):
        found = list(blocks(Lq, Lk, rows, in_order=True))
        assert [row for block in found for row in range(block.start, block.stop)] == [*range(Lq)]
        for block in found:
            assert block.keys == max(block.stop + Lk - Lq, 0)
        assert {block.keys for block in blocks(Lq, Lk, rows, in_order=False)} == {Lk}


def test_dropped_weights_are_the_same_in_both_passes() -> None:
    L, dropout = 13, 0.4
    x, cotangent = draw(1, 1, 1, L, L), draw(5, 1, 1, L, L)
    q, k, eye = (TWIN.array(a) for a in (x, x, np.eye(L)[None, None]))
    options = {"dropout": dropout, "implementation": "blockwise"}

    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return relpos_torch.attention(q, k, eye, NoPosition(), **options)

    q.requires_grad_()
    with block_rows(4):
        drawn, again, other = weights(3), weights(3), weights(4)
        (gradient,) = torch.autograd.grad(drawn, q, TWIN.array(cotangent))
    assert torch.equal(drawn, again)
    kept = TWIN.numpy(drawn) != 0
    assert (kept != (TWIN.numpy(other) != 0)).any()
    # The weights come out as they are, so that dropping them is dropping entries of the cotangent.
    by_weight = np.where(kept, cotangent / (1.0 - dropout), 0.0)
    expected = oracle.attention(NoPosition(), {}, x, x, TWIN.numpy(eye), cotangent=by_weight)
    passes(compare(expected.gradients["q"], TWIN.numpy(gradient)))


def test_dropout_meets_tables_of_values_in_both_passes() -> None:
    # At the same draw the output is linear in the values and in their table.
    scheme, L = Shaw(2, 1), 13
    q, params = inputs(scheme, L)
    v = TWIN.array(draw(7, 1, 2, L, 3)).requires_grad_()
    with block_rows(4):
        torch.manual_seed(0)
        out = relpos_torch.attention(
            q, q, v, scheme, params, dropout=0.3, implementation="blockwise"
        )
        cotangent = torch.ones_like(out)
        leaves = [v, params["value_table"]]
        by_values, by_table = torch.autograd.grad(out, leaves, cotangent)
    linear = (by_values * v).sum() + (by_table * params["value_table"]).sum()
    assert math.isclose(float(linear.detach()), float(out.sum().detach()), rel_tol=1e-12)


def test_as_many_weights_are_dropped_as_asked_for_and_none_twice_as_likely() -> None:
    L, dropout = 64, 0.25
    eye, zeros = torch.eye(L).expand(1, 4, L, L), torch.zeros(1, 4, L, L)
    torch.manual_seed(0)
    with block_rows(24):
        drawn = relpos_torch.attention(
            zeros, zeros, eye, NoPosition(), dropout=dropout, implementation="blockwise"
        )
    kept = drawn.numpy() != 0
    # Six standard deviations of as many draws.
    for axis, draws in ((None, 4 * L * L), ((0, 2, 3), L * L), ((0, 1, 2), 4 * L)):
        bound = 6 * math.sqrt(dropout * (1 - dropout) / draws)
        assert (np.abs(kept.mean(axis) - (1 - dropout)) < bound).all()
    rows = kept.reshape(-1, L)
    assert len({row.tobytes() for row in rows}) == len(rows)


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation gives."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // 8)
        return found


@pytest.mark.parametrize("implementation", ["blockwise", "dense"])
def test_no_tensor_is_larger_than_a_block(
    implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What runs in other threads would not be seen.
    monkeypatch.setattr(workers, "workers_for", lambda device, heads: 0)
    L, rows, H, d = 64, 8, 2, 2
    for scheme in (Shaw(L - 1, L - 1), ShawBoth(3, 3), T5()):
        q, params = inputs(scheme, L, H, d)
        with block_rows(rows), Largest() as largest:
            gradients(scheme, q, params, causal=True, implementation=implementation)
        # Rows by distances, or tables and their gradients.
        bound = max((rows + 1) * (L + 2 * rows), 2 * L * H * d)
        assert (largest.numbers <= bound) == (implementation == "blockwise"), scheme


def test_results_do_not_depend_on_the_number_of_workers_and_threads_are_left_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheme, before = ShawBoth(2, 1), torch.get_num_threads()
    q, params = inputs(scheme, 13, H=3)
    with block_rows(4):
        once, again = gradients(scheme, q, params), gradients(scheme, q, params)
        monkeypatch.setattr(workers, "workers_for", lambda device, heads: 3)
        others = gradients(scheme, q, params)
        monkeypatch.setattr(workers, "workers_for", lambda device, heads: 0)
        alone = gradients(scheme, q, params)
    assert torch.get_num_threads() == before
    for results in (again, others, alone):
        assert all(map(torch.equal, once, results))


def test_what_a_worker_raises_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "workers_for", lambda device, heads: 2)

    def fail(heads: range) -> None:
        raise ValueError(str(heads))

    with pytest.raises(ValueError, match="range"):
        workers.over_heads(fail, torch.device("cpu"), 2)


def test_a_row_that_sees_nothing_is_zero_and_so_is_its_gradient() -> None:
    scheme, L = Shaw(2, 1), 13
    q, params = inputs(scheme, L)
    k = q.detach().clone().requires_grad_()
    mask = torch.ones(1, 1, L, L, dtype=torch.bool)
    mask[..., 6, :] = False
    with block_rows(4):
        out = relpos_torch.attention(q, k, k, scheme, params, mask=mask, implementation="blockwise")
        by_query, by_key = torch.autograd.grad(out.sum(), [q, k])
    assert (out[:, :, 6] == 0).all()
    assert (by_query[:, :, 6] == 0).all()
    assert (out[:, :, 7] != 0).all()
    assert (by_key != 0).all()
    # Causal queries before the first key see nothing; whole blocks of them are left out.
    with block_rows(4):
        first = relpos_torch.attention(
            q, k[:, :, :3], k[:, :, :3], scheme, params, causal=True, implementation="blockwise"
        )
    assert (first[:, :, :10] == 0).all()
    assert (first[:, :, 10:] != 0).all()


def test_functional_transforms_give_what_autograd_does() -> None:
    scheme, L = Shaw(2, 1), 7
    q, params = inputs(scheme, L)
    k, v = (TWIN.array(draw(n, *q.shape)).requires_grad_() for n in (8, 9))
    leaves = {"q": q, "k": k, "v": v, **params}

    def loss(leaves: dict[str, torch.Tensor]) -> torch.Tensor:
        qkv, params = [leaves[name] for name in "qkv"], {n: leaves[n] for n in leaves if n[1:]}
        out = relpos_torch.attention(*qkv, scheme, params, implementation="blockwise")
        return out.square().sum()

    expected = torch.autograd.grad(loss(leaves), list(leaves.values()))
    alone = torch.func.grad(loss)(leaves)
    two = {name: torch.stack((leaf, 2.0 * leaf)) for name, leaf in leaves.items()}
    both = torch.func.vmap(torch.func.grad(loss))(two)
    for (name, found), right in zip(alone.items(), expected, strict=True):
        assert torch.equal(found, right), name
        assert torch.equal(both[name][0], right), name
        assert not torch.equal(both[name][1], right), name


def test_a_second_derivative_is_refused_in_words() -> None:
    q, params = inputs(Shaw(2, 1), 5)
    (once,) = torch.autograd.grad(
        attention(Shaw(2, 1), q, params).square().sum(), q, create_graph=True
    )
    with pytest.raises(SettingError, match=r"differentiated once.*dense"):
        once.sum().backward()


def test_it_runs_in_inference_mode() -> None:
    q, params = inputs(Fire(), 5)
    expected = attention(Fire(), q, params)
    with torch.inference_mode():
        assert torch.equal(attention(Fire(), q, params), expected)


def test_counted_places_are_refused_by_name_and_served_by_auto() -> None:
    q, params = inputs(CoPE(4), 5)
    with pytest.raises(SettingError, match=r"no places counted by the content.*dense"):
        attention(CoPE(4), q, params)
    assert attention(CoPE(4), q, params, implementation="auto").isfinite().all()


def test_auto_takes_dense_for_short_calls_and_blockwise_for_long_ones() -> None:
    assert choose_kernel("auto", ALiBi(), 64, 64)[0] == "dense"
    assert choose_kernel("auto", ALiBi(), 4096, 4096)[0] == "blockwise"
    assert choose_kernel("auto", ALiBi(), 1, 4096)[0] == "dense"
    kernel, reason = choose_kernel("auto", ALiBi(), 4096, 4096, torch.device("meta"))
    assert kernel == "dense"
    assert "meta" in reason


def test_calls_of_several_threads_leave_the_number_of_threads_as_it_was() -> None:
    before = torch.get_num_threads()
    q, params = inputs(ALiBi(), 300)
    expected = attention(ALiBi(), q, params)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: attention(ALiBi(), q, params), range(6)))
    assert all(torch.equal(each, expected) for each in found)
    assert torch.get_num_threads() == before
    seen: list[int] = []
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert seen == [before]


def test_a_program_that_ends_still_computes() -> None:
    script = """
import threading, time, torch, relpos_torch
from relpos import ALiBi
def work():
    time.sleep(0.5)
    x = torch.randn(1, 2, 9, 8)
    relpos_torch.attention(x, x, x, ALiBi(), implementation="blockwise")
    print("done")
threading.Thread(target=work).start()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "done\n", done.stderr


def test_what_watches_operations_sees_them() -> None:
    q, params = inputs(ALiBi(), 9)
    with FlopCounterMode(display=False) as counter:
        attention(ALiBi(), q.detach(), params)
    assert counter.get_total_flops() > 0
    traced = make_fx(lambda q: attention(ALiBi(), q, params))(q.detach())
    assert torch.equal(traced(q.detach()), attention(ALiBi(), q, params))


def test_a_mask_made_in_inference_mode_may_be_trained_with() -> None:
    with torch.inference_mode():
        mask = torch.ones(1, 1, 5, 5, dtype=torch.bool)
    q, params = inputs(ALiBi(), 5)
    attention(ALiBi(), q, params, mask=mask).sum().backward()
    assert q.grad is not None


def test_a_layer_refuses_a_kernel_that_does_not_serve_its_scheme() -> None:
    for scheme, name in ((T5(), "fused"), (CoPE(4), "blockwise")):
        with pytest.raises(SettingError, match=f"the kernel {name} serves"):
            relpos_torch.RelativeAttention(6, 2, scheme, implementation=name)
