"""What is asked of every layer, and the float64 oracle's answer, computed in a process of its own.

The oracle is loops in Python over every pair of tokens, a second or two per layer. Another process
is at work on it while this one imports the frameworks and compiles.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from relpos import oracle
from relpos.demo.engine import Recording
from relpos.oracle import Estimate, Precision, Result
from relpos.settings import AttentionSettings
from relpos.weights import Weights

__all__ = ["Oracle", "Question", "Truth", "questions_of", "truth_of"]

_SEED = 2018


@dataclass(frozen=True, eq=False)
class Question:
    """One layer's real input, the same for every side.

    Attributes:
        x: What the model feeds to the layer [1, L, D].
        cotangent: [1, L, D]; gradients are those of sum(cotangent * output).
        q: The layer's queries [H, L, d], rounded to float32 once.
        k: Its keys, likewise.
        tables: The scheme's tables, one per head [H, N, d].
    """

    x: NDArray[np.float32]
    cotangent: NDArray[np.float32]
    q: NDArray[np.float32]
    k: NDArray[np.float32]
    tables: dict[str, NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Truth:
    """The oracle's answer to one question.

    Attributes:
        layer: Output and gradients of the layer.
        scores: What the positions add to the scores of q and k [H, L, L].
    """

    layer: Result
    scores: Estimate


def questions_of(weights: Weights, recording: Recording) -> dict[str, Question]:
    """The question to each layer; the cotangent is drawn once, and is the same for all."""
    (x, _), *_ = recording.values()
    cotangent = np.random.default_rng(_SEED).standard_normal(x.shape).astype(np.float32)
    return {
        layer: _question(weights.layer(layer), x, cotangent) for layer, (x, _) in recording.items()
    }


def _question(weights: Weights, x: NDArray[np.float32], cotangent: NDArray[np.float32]) -> Question:
    settings, tensors = weights.settings, weights.tensors

    def heads(name: str) -> NDArray[np.float32]:
        kernel = tensors[f"{name}.kernel"].astype(np.float64)
        projected = np.einsum("ld,dhe->hle", x[0].astype(np.float64), kernel)
        if settings.bias:
            projected += tensors[f"{name}.bias"][:, None]
        rounded: NDArray[np.float32] = projected.astype(np.float32)
        return rounded

    tables = {
        table.name: np.repeat(tensors[table.name], settings.num_heads // table.shape[0], axis=0)
        for table in settings.scheme.parameters(settings.num_heads, settings.width)
    }
    return Question(x, cotangent, heads("query"), heads("key"), tables)


def truth_of(
    settings: AttentionSettings, tensors: Mapping[str, NDArray[np.float32]], question: Question
) -> Truth:
    """The oracle's answer to one question, with the budgets of float32."""
    single = Precision.of("float32")
    layer = oracle.layer(
        settings,
        {name: array.astype(np.float64) for name, array in tensors.items()},
        question.x.astype(np.float64),
        cotangent=question.cotangent.astype(np.float64),
        precision=single,
    )
    heads = [
        oracle.relative_scores(
            settings.scheme,
            {name: table[h].astype(np.float64) for name, table in question.tables.items()},
            question.q[h].astype(np.float64),
            question.k[h].astype(np.float64),
            precision=single,
        ).output
        for h in range(settings.num_heads)
    ]
    scores = Estimate(np.stack([h.value for h in heads]), np.stack([h.budget for h in heads]))
    return Truth(layer, scores)


class Oracle:
    """The oracle at work beside this process, in a `with` block.

    Args:
        weights: The layers.
        questions: One per layer.
    """

    def __init__(self, weights: Weights, questions: Mapping[str, Question]) -> None:
        # A fresh interpreter: a fork would copy the threads' locks of whatever is loaded here.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(max_workers=1, mp_context=context)
        self._answers: dict[str, Future[Truth]] = {}
        for layer, question in questions.items():
            tensors = dict(weights.layer(layer).tensors)
            self._answers[layer] = self._pool.submit(
                truth_of, weights.layers[layer], tensors, question
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def answers(self) -> dict[str, Truth]:
        """Every layer's truth, once the last one is there."""
        return {layer: answer.result() for layer, answer in self._answers.items()}
