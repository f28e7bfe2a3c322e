"""Every side against the oracle, against the engine and against one another.

A side that computes what the engine computes is one thing, a side that computes the truth another:
so the engine is judged by the oracle too, and pairs may differ by what both are allowed together.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from relpos.demo.truth import Truth
from relpos.demo.voice import Voice
from relpos.parity.comparison import Comparison, compare, compare_exact, compare_pair
from relpos.parity.report import Check
from relpos.parity.sides.base import Answer, gradient_of
from relpos.weights import Weights, export

__all__ = ["ENGINE", "SCORES", "bits_check", "distance_of_pair", "layer_checks", "pair_name"]

ENGINE = "onnxruntime"
#: Name of the position scores among a side's comparisons.
SCORES = "position scores"
_DTYPE = "float32"


def distance_of_pair(index: tuple[int, ...]) -> int:
    """The distance j - i of an entry [h, i, j] of scores."""
    _, i, j = index
    return j - i


def pair_name(first: str, second: str) -> str:
    """Two sides as one that can be right or wrong."""
    return f"{first} against {second}"


def layer_checks(
    layer: str,
    truth: Truth,
    answers: Mapping[str, Answer],
    scores: Mapping[str, NDArray[np.float32]],
) -> list[Check]:
    """The checks of one layer.

    Args:
        layer: Its path.
        truth: What the oracle says.
        answers: By side: the output, and gradients where the side has any.
        scores: By side: the position scores, where the side can be asked for them.
    """
    subject, case = f"layer {layer}", "real input"
    known = {"output": truth.layer.output}
    known |= {gradient_of(name): e for name, e in truth.layer.gradients.items()}
    checks = []
    for side, answer in answers.items():
        comparisons = [
            compare(estimate, answer[what], what=what, dtype=_DTYPE)
            for what, estimate in known.items()
            if what == "output" or side != ENGINE
        ]
        if side in scores:
            comparisons.append(_compare_scores(truth, scores[side]))
        checks.append(Check(subject, case, side, _DTYPE, tuple(comparisons)))
    sides = list(answers)
    for n, first in enumerate(sides):
        for second in sides[:n]:
            pair = tuple(
                compare_pair(answers[first][what], answers[second][what], estimate, what=what)
                for what, estimate in known.items()
                if what == "output" or ENGINE not in (first, second)
            )
            checks.append(Check(subject, case, pair_name(first, second), _DTYPE, pair))
    return checks


def _compare_scores(truth: Truth, scores: NDArray[np.float32]) -> Comparison:
    return compare(
        truth.scores, scores, what=SCORES, dtype=_DTYPE, distance_of=distance_of_pair
    )


def bits_check(voice: Voice, side: str, back: Weights) -> Check:
    """The weights that a side holds, written in the voice's own layout: the original's bits."""
    names, _ = export(back, "vits", prefix=voice.prefix)
    comparisons = [
        Comparison(name, problem="is not among the arrays that came back")
        if name not in names
        else compare_exact(_bytes(array), _bytes(names[name]), what=name)
        for name, array in voice.original.items()
    ]
    comparisons += [
        Comparison(name, problem="is not among the voice's arrays")
        for name in names
        if name not in voice.original
    ]
    return Check("weights", "back to the voice's layout", side, "", tuple(comparisons))


def _bytes(array: NDArray[np.float32]) -> NDArray[np.uint8]:
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
