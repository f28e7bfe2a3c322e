"""PyTorch's own attention as a kernel: the rows of the roster that leave no term, in every case."""

from __future__ import annotations

import pytest

import relpos_torch
from parity_tests.twins.twin import TorchTwin, draw, passes
from relpos import NoPosition, RoPE, oracle
from relpos.checks import Sizes
from relpos.parity import compare, reference
from relpos.parity.roster import ROSTER, Row
from relpos.parity.sides.torch_side import to_tensor
from relpos_torch.kernels.positions import Positions
from relpos_torch.kernels.terms import Terms
from relpos_torch.schemes import Call, lower

plain_rows = pytest.mark.parametrize(
    "row", [row for row in ROSTER.values() if row.scheme.content_only], ids=lambda row: row.name
)


@plain_rows
def test_a_scheme_that_says_so_leaves_no_term(row: Row) -> None:
    case = row.cases[0]
    inputs = case.inputs("float64")
    tokens = {name: to_tensor(array) for name, array in inputs.tokens.items()}
    sizes = Sizes(case.B, case.H, tokens["k"].shape[1], case.Lq, case.Lk, case.d)
    positions = Positions.of(None, None, sizes, False, row.scheme.position_axes)
    read = (tokens.get("query_features"), tokens.get("key_features"))
    call = Call(tokens["q"], tokens["k"], positions, 0.5, *read)
    params = {name: to_tensor(array) for name, array in inputs.params.items()}
    terms = lower(row.scheme, params, call).terms
    assert terms == Terms(terms.scale)


@plain_rows
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_output_and_gradients_are_those_of_the_oracle(row: Row, dtype: str) -> None:
    for case in row.cases:
        inputs = case.inputs(dtype)
        leaves = {n: to_tensor(a).requires_grad_() for n, a in inputs.tokens.items()}
        options = {
            name: None if array is None else to_tensor(array)
            for name in ("mask", "query_positions", "key_positions")
            if (array := getattr(inputs, name)) is not None
        }
        out = relpos_torch.attention(
            *leaves.values(),
            row.scheme,
            causal=case.causal,
            scale=case.scale,
            implementation="fused",
            **options,
        )
        out.backward(to_tensor(inputs.cotangent))
        expected = reference.result("attention", case, dtype)
        passes(compare(expected.output, out.detach().numpy()))
        for name, leaf in leaves.items():
            assert leaf.grad is not None
            passes(compare(expected.gradients[name], leaf.grad.numpy()))


def test_a_long_causal_call_does_not_see_the_future() -> None:
    q, k, v = (draw(n, 1, 2, 300, 8) for n in range(3))
    twin = TorchTwin()
    before = twin.attention(RoPE("half"), {}, q, k, v, causal=True)
    k[:, :, 200:] += 1.0
    after = twin.attention(RoPE("half"), {}, q, k, v, causal=True)
    assert (after[:, :, :200] == before[:, :, :200]).all()
    assert (after[:, :, 200:] != before[:, :, 200:]).any()


@pytest.mark.parametrize("scale", [0.0, -0.5])
def test_a_scale_that_is_not_positive_masks_the_future_all_the_same(scale: float) -> None:
    q, k, v = (draw(n, 1, 2, 5, 4) for n in range(3))
    got = TorchTwin().attention(
        NoPosition(), {}, q, k, v, causal=True, scale=scale, implementation="fused"
    )
    expected = oracle.attention(NoPosition(), {}, q, k, v, causal=True, scale=scale)
    passes(compare(expected.output, got))
