"""What the oracle says about a case, computed once per run."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpos import oracle
from relpos.oracle import Estimate, Precision, Result
from relpos.parity.cases import Case

__all__ = ["attention", "layer", "relative_scores"]


def _exact(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.float64]]:
    return {name: array.astype(np.float64) for name, array in arrays.items()}


@functools.cache
def attention(case: Case, dtype: str) -> Result:
    """The oracle of `attention` with the budgets of `dtype`."""
    inputs = case.inputs(dtype)
    return oracle.attention(
        case.scheme,
        _exact(inputs.params),
        *(array.astype(np.float64) for array in (inputs.q, inputs.k, inputs.v)),
        mask=inputs.mask,
        causal=case.causal,
        query_positions=inputs.query_positions,
        key_positions=inputs.key_positions,
        scale=case.scale,
        cotangent=inputs.cotangent.astype(np.float64),
        precision=Precision.of(dtype),
    )


@functools.cache
def relative_scores(case: Case, dtype: str) -> Result:
    """The oracle of `relative_scores`, every head of `Case.head_inputs` on its own, stacked."""
    heads = case.head_inputs(dtype)
    results = [
        oracle.relative_scores(
            case.scheme,
            {name: array[h].astype(np.float64) for name, array in heads.params.items()},
            heads.q[h].astype(np.float64),
            heads.k[h].astype(np.float64),
            query_positions=heads.query_positions,
            key_positions=heads.key_positions,
            scale=case.scale,
            cotangent=heads.cotangent[h].astype(np.float64),
            precision=Precision.of(dtype),
        )
        for h in range(case.H)
    ]
    return Result(
        _stack([result.output for result in results]),
        {
            name: _stack([result.gradients[name] for result in results])
            for name in results[0].gradients
        },
        results[0].distances,
        results[0].rows,
    )


def _stack(estimates: list[Estimate]) -> Estimate:
    return Estimate(
        np.stack([estimate.value for estimate in estimates]),
        np.stack([estimate.budget for estimate in estimates]),
    )


@functools.cache
def layer(case: Case, dtype: str) -> Result:
    """The oracle of the layers with the budgets of `dtype`."""
    inputs = case.layer_inputs(dtype)
    return oracle.layer(
        inputs.settings,
        _exact(inputs.tensors),
        inputs.x.astype(np.float64),
        None if inputs.key_value is None else inputs.key_value.astype(np.float64),
        mask=inputs.mask,
        query_positions=inputs.query_positions,
        key_positions=inputs.key_positions,
        cotangent=inputs.cotangent.astype(np.float64),
        precision=Precision.of(dtype),
    )
