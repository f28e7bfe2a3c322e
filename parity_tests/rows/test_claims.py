"""What every scheme promises, on every row of the roster.

Values and gradients against the oracle are those of `parity_tests/parity`: there every row meets
fewer queries than keys, cross-attention, grouped heads, queries that may attend to nothing, one
token alone and lengths past its tables. Here stand the promises that relate two calls.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch

import relpos_torch
from parity_tests.rows.calls import (
    OUTPUTS,
    L,
    both_twins,
    every_row,
    first_rows,
    jax_shape,
    needs,
    self_attention,
    torch_output,
    truth,
    with_tokens,
)
from parity_tests.twins.twin import passes
from relpos.parity import compare
from relpos.parity.cases import Case
from relpos.parity.roster import FIRST_ROWS, Row
from relpos.parity.sides.torch_side import to_tensor


@both_twins
def test_a_causal_output_does_not_see_the_future(row: Row, twin: str) -> None:
    needs(row, "causal")
    case, inputs = self_attention(row)
    other = case.replace(seed=1).inputs("float64").tokens
    before = OUTPUTS[twin](case, inputs)
    for t in (1, 4, L - 1):
        changed = {
            name: np.concatenate([array[:, :, :t], other[name][:, :, t:]], 2)
            for name, array in inputs.tokens.items()
        }
        after = OUTPUTS[twin](case, with_tokens(inputs, changed))
        np.testing.assert_array_equal(after[:, :, :t], before[:, :, :t])
        assert (after[:, :, t:] != before[:, :, t:]).all()


@both_twins
def test_positions_shifted_together_change_nothing(row: Row, twin: str) -> None:
    needs(row, "translation")
    if not row.scheme.translation_invariant or row.scheme.position_limits is not None:
        pytest.skip("the scheme depends on more than distances, and says so")
    case, inputs = self_attention(row)
    here = truth(case, inputs)
    at = inputs.key_positions
    assert at is not None
    for shift in (-3, 1000, 131_071):
        moved = dict.fromkeys(("query_positions", "key_positions"), at + shift)
        passes(compare(here, OUTPUTS[twin](case, dataclasses.replace(inputs, **moved))))


@both_twins
def test_sequences_packed_or_padded_into_one_row_are_each_as_if_alone(row: Row, twin: str) -> None:
    needs(row, "packing")
    case, inputs = self_attention(row)
    at = np.array([0, 1, 2, 3, 0, 1, 2], np.int32)
    segment = np.array([0, 0, 0, 0, 1, 1, 1])
    together = segment[:, None] == segment
    padded = np.broadcast_to(segment == 1, (L, L)) & together
    expected = [_alone(row, slice(0, 4)), _alone(row, slice(4, 7))]
    for mask, parts in ((together, (0, 1)), (padded, (1,))):
        positions = np.tile(at, (case.B, 1))
        moved = dataclasses.replace(
            inputs,
            mask=np.tile(mask[None, None], (case.B, 1, 1, 1)),
            query_positions=positions,
            key_positions=positions,
        )
        got = OUTPUTS[twin](case, moved)
        for part in parts:
            passes(compare(expected[part], got[:, :, segment == part]))


def _alone(row: Row, part: slice) -> Any:
    """The oracle's output for some of the tokens, as a sequence of their own."""
    case, inputs = self_attention(row)
    few = {name: array[:, :, part] for name, array in inputs.tokens.items()}
    none: dict[str, Any] = dict.fromkeys(("mask", "query_positions", "key_positions"))
    return truth(case, dataclasses.replace(with_tokens(inputs, few), **none))


@pytest.mark.parametrize(
    ("row", "twin"),
    # In JAX: a table that meets queries, one that meets keys too, and one of numbers.
    [(row, "torch") for row in FIRST_ROWS.values()]
    + [(FIRST_ROWS[name], "jax") for name in ("Shaw", "DeBERTa", "T5")],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_query_changes_no_output_but_its_own(row: Row, twin: str) -> None:
    # With the default positions, where tables are shifted and not gathered: a shift that is one
    # cell off reads the next query's scores, for keys after the query above all.
    case = Case("self", row.scheme, G=1, Lq=L, d=row.d, causal=row.scheme.causal_only)
    inputs = case.inputs("float64")
    before = OUTPUTS[twin](case, inputs)
    for t in (1, L - 1):
        q = inputs.q.copy()
        q[:, :, t] += 1.0
        after = OUTPUTS[twin](case, dataclasses.replace(inputs, q=q))
        np.testing.assert_array_equal(np.delete(after, t, 2), np.delete(before, t, 2))
        assert (after[:, :, t] != before[:, :, t]).all()


@every_row
def test_a_query_before_every_key_reads_nothing(row: Row) -> None:
    case, inputs = self_attention(row)
    later = np.tile(1 + np.arange(L, dtype=np.int32) % (L - 1), (case.B, 1))
    first = np.zeros((case.B, L), np.int32)
    moved = dataclasses.replace(inputs, query_positions=first, key_positions=later)
    assert (torch_output(case, moved) == 0.0).all()


@every_row
def test_a_mask_of_any_broadcastable_shape_is_the_full_one(row: Row) -> None:
    case, inputs = self_attention(row)
    full = (case.B, case.H, L, L)
    for shape in itertools.product(*((1, size) for size in full)):
        mask = np.random.default_rng(7).random(shape) > 0.4
        outputs = [
            torch_output(case, dataclasses.replace(inputs, mask=given))
            for given in (mask, np.broadcast_to(mask, full))
        ]
        np.testing.assert_array_equal(*outputs)


@every_row
def test_strided_views_are_read_like_their_copies(row: Row) -> None:
    case, inputs = self_attention(row)
    tensors = {name: to_tensor(array) for name, array in inputs.tokens.items()}
    views = {
        # Every other token of a longer tensor whose heads stand after its tokens.
        name: torch.stack([t, t], 3)
        .flatten(2, 3)
        .transpose(1, 2)
        .contiguous()
        .transpose(1, 2)[:, :, ::2]
        for name, t in tensors.items()
    }
    assert not any(view.is_contiguous() for view in views.values())
    q, k, v = (views.pop(name) for name in "qkv")
    # Tables whose last axis is not the one that is contiguous.
    params = {
        name: to_tensor(array.swapaxes(0, -1)).transpose(0, -1)
        for name, array in inputs.params.items()
    }
    at = torch.arange(L)
    got = relpos_torch.attention(
        q, k, v, row.scheme, params, **views, causal=True, query_positions=at, key_positions=at
    )
    passes(compare(truth(case, inputs), got.numpy()))


@every_row
@pytest.mark.parametrize("positions", ["default", "packed"])
def test_gradients_are_the_same_bits_each_time(row: Row, positions: Any) -> None:
    case = next(case for case in row.cases if case.positions == positions)
    inputs = case.inputs("float32")

    def gradients() -> list[torch.Tensor]:
        leaves = {
            name: to_tensor(array).requires_grad_()
            for name, array in {**inputs.tokens, **inputs.params}.items()
        }
        params = {name: leaves[name] for name in inputs.params}
        features = {name: leaves[name] for name in leaves if name.endswith("_features")}
        options = {
            name: None if array is None else to_tensor(array)
            for name, array in (
                ("mask", inputs.mask),
                ("query_positions", inputs.query_positions),
                ("key_positions", inputs.key_positions),
            )
        }
        output = relpos_torch.attention(
            *(leaves[name] for name in "qkv"),
            row.scheme,
            params,
            **features,
            **options,
            causal=case.causal,
        )
        output.backward(to_tensor(inputs.cotangent))
        return [leaf.grad for leaf in leaves.values() if leaf.grad is not None]

    first, second = gradients(), gradients()
    assert len(first) >= 3
    assert all(map(torch.equal, first, second))


@every_row
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_the_output_has_the_dtype_of_the_inputs(row: Row, dtype: str) -> None:
    case = row.cases[0]
    assert torch_output(case, case.inputs(dtype)).dtype.name == dtype


@first_rows
def test_jax_keeps_the_dtype_of_the_inputs(row: Row) -> None:
    case = row.cases[0]
    assert jax_shape(case, case.inputs("bfloat16")).dtype.name == "bfloat16"
