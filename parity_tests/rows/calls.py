"""`attention` of each twin, and of the oracle, on inputs of a case that a test has changed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import relpos_jax
import relpos_torch
from relpos import oracle
from relpos.oracle import Estimate, Precision
from relpos.parity.cases import Case, Inputs
from relpos.parity.roster import FIRST_ROWS, ROSTER, Row
from relpos.parity.sides.torch_side import to_numpy, to_tensor
from relpos.schemes import Scheme

#: Tokens of one row of `self_attention`.
L = 7

every_row = pytest.mark.parametrize("row", ROSTER.values(), ids=lambda row: row.name)
first_rows = pytest.mark.parametrize("row", FIRST_ROWS.values(), ids=lambda row: row.name)


def needs(row: Row, claim: str) -> None:
    """Skip a row that says why a claim is not for it."""
    if claim in row.exempt:
        pytest.skip(row.exempt[claim])


def self_attention(row: Row) -> tuple[Case, Inputs]:
    """Causal self-attention in float64 with an explicit mask and explicit positions.

    Tests change the arrays and never their shapes: in JAX they share one compilation per row.
    """
    case = Case("self", row.scheme, G=1, Lq=L, d=row.d, causal=True)
    start = 0 if row.scheme.position_limits is None else row.scheme.position_limits[0]
    at = np.tile(np.arange(start, start + L, dtype=np.int32), (case.B, 1))
    mask = np.ones((case.B, 1, L, L), bool)
    inputs = case.inputs("float64")
    return case, dataclasses.replace(inputs, mask=mask, query_positions=at, key_positions=at)


def with_tokens(inputs: Inputs, tokens: dict[str, NDArray[Any]]) -> Inputs:
    """The inputs with other tokens, named as `Inputs.tokens` names them."""
    qkv = {name: tokens[name] for name in "qkv"}
    features = {name: array for name, array in tokens.items() if name not in qkv}
    return dataclasses.replace(inputs, **qkv, features=features)


def truth(case: Case, inputs: Inputs) -> Estimate:
    """What the oracle says, without gradients."""
    options = _options(inputs)
    return oracle.attention(
        case.scheme,
        inputs.params,
        inputs.q,
        inputs.k,
        inputs.v,
        **options,
        causal=case.causal,
        scale=case.scale,
        precision=Precision.of("float64"),
    ).output


def torch_output(case: Case, inputs: Inputs) -> NDArray[Any]:
    """PyTorch's output."""
    tensors = {name: to_tensor(array) for name, array in inputs.tokens.items()}
    options = {
        name: None if array is None else to_tensor(array)
        for name, array in _options(inputs).items()
    }
    params = {name: to_tensor(array) for name, array in inputs.params.items()}
    return to_numpy(
        relpos_torch.attention(
            tensors["q"],
            tensors["k"],
            tensors["v"],
            case.scheme,
            params,
            **options,
            causal=case.causal,
            scale=case.scale,
        )
    )


def jax_output(case: Case, inputs: Inputs) -> NDArray[Any]:
    """JAX's output, compiled once per scheme and shapes."""
    return np.asarray(_program(case.scheme, case.causal, case.scale)(*_arguments(inputs))).swapaxes(
        1, 2
    )


def jax_shape(case: Case, inputs: Inputs) -> jax.ShapeDtypeStruct:
    """The shape and dtype of JAX's output, without computing it."""
    program = _program(case.scheme, case.causal, case.scale)
    shape: jax.ShapeDtypeStruct = jax.eval_shape(program, *_arguments(inputs))
    return shape


def _arguments(inputs: Inputs) -> tuple[Any, ...]:
    arrays = {name: jnp.asarray(a) for name, a in _options(inputs).items() if a is not None}
    for name in ("query_features", "key_features"):
        if name in arrays:
            arrays[name] = arrays[name].swapaxes(1, 2)
    qkv = (jnp.asarray(a.swapaxes(1, 2)) for a in (inputs.q, inputs.k, inputs.v))
    return *qkv, {name: jnp.asarray(array) for name, array in inputs.params.items()}, arrays


#: Each twin's output.
OUTPUTS = {"torch": torch_output, "jax": jax_output}
first_rows = pytest.mark.parametrize("row", FIRST_ROWS.values(), ids=lambda row: row.name)
#: JAX takes seconds to compile what torch does at once: the first row of each scheme stands for it.
both_twins = pytest.mark.parametrize(
    ("row", "twin"),
    [
        pytest.param(row, twin, id=f"{row.name}-{twin}")
        for row in ROSTER.values()
        for twin in OUTPUTS
        if twin == "torch" or row is FIRST_ROWS[row.scheme.name]
    ],
)


@functools.cache
def _program(scheme: Scheme, causal: bool, scale: float | None) -> Callable[..., jax.Array]:
    def call(q: Any, k: Any, v: Any, params: Any, arrays: Any) -> jax.Array:
        return relpos_jax.attention(q, k, v, scheme, params, **arrays, causal=causal, scale=scale)

    return jax.jit(call)


def _options(inputs: Inputs) -> dict[str, Any]:
    return {
        "mask": inputs.mask,
        "query_positions": inputs.query_positions,
        "key_positions": inputs.key_positions,
        **inputs.features,
    }
