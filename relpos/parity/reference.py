"""What the oracle says about a case, computed once per run, by a process beside it if asked.

The oracle is loops in Python, the sides mostly wait for compilers: together they fill two cores.
"""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpos import oracle
from relpos.oracle import Estimate, Precision, Result
from relpos.parity.cases import Case

__all__ = ["ahead", "result"]

#: Call, case and dtype.
Question = tuple[str, Case, str]
_at_work: dict[Question, Future[Result]] = {}


@functools.cache
def result(call: str, case: Case, dtype: str) -> Result:
    """What the oracle of a call says about a case, with the budgets of `dtype`.

    Args:
        call: `attention`, `relative_scores` (every head of `Case.head_inputs` on its own, stacked),
            `layer` or `decode` (the layer's full run).
        case: The inputs.
        dtype: To which the inputs are rounded, and which the budgets are for.
    """
    future = _at_work.pop((call, case, dtype), None)
    return _compute(call, case, dtype) if future is None else future.result()


@contextmanager
def ahead(questions: Iterable[Question]) -> Iterator[None]:
    """Let another process answer these questions, in order, while the block runs.

    That process imports the main module again, which must therefore be importable without effect.
    """
    # A fresh interpreter: a fork would copy the locks of whatever threads there are.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(max_workers=1, mp_context=context)
    try:
        for question in dict.fromkeys(questions):
            _at_work[question] = pool.submit(_compute, *question)
        yield
    finally:
        _at_work.clear()
        pool.shutdown(cancel_futures=True)


def _compute(call: str, case: Case, dtype: str) -> Result:
    return _ORACLES[call](case, dtype)


def _exact(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.float64]]:
    return {name: array.astype(np.float64) for name, array in arrays.items()}


def _attention(case: Case, dtype: str) -> Result:
    inputs = case.inputs(dtype)
    return oracle.attention(
        case.scheme,
        _exact(inputs.params),
        *(array.astype(np.float64) for array in (inputs.q, inputs.k, inputs.v)),
        mask=inputs.mask,
        causal=case.causal,
        query_positions=inputs.query_positions,
        key_positions=inputs.key_positions,
        **_exact(inputs.features),
        scale=case.scale,
        cotangent=inputs.cotangent.astype(np.float64),
        precision=Precision.of(dtype),
    )


def _relative_scores(case: Case, dtype: str) -> Result:
    heads = case.head_inputs(dtype)
    results = [
        oracle.relative_scores(
            case.scheme,
            {name: array[h].astype(np.float64) for name, array in heads.params.items()},
            heads.q[h].astype(np.float64),
            heads.k[h].astype(np.float64),
            query_positions=heads.query_positions,
            key_positions=heads.key_positions,
            **{name: array[h].astype(np.float64) for name, array in heads.features.items()},
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


def _layer(case: Case, dtype: str) -> Result:
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


_ORACLES: dict[str, Callable[[Case, str], Result]] = {
    "attention": _attention,
    "relative_scores": _relative_scores,
    "layer": _layer,
    "decode": _layer,
}
