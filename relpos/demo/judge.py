"""Every side against the oracle, against the engine and against one another.

A side that computes what the engine computes is one thing, a side that computes the truth another:
so the engine is judged by the oracle too, and pairs may differ by what both are allowed together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from relpos.demo.truth import Truth
from relpos.demo.voice import Voice
from relpos.parity.comparison import Comparison, compare, compare_exact, compare_pair
from relpos.parity.report import Check
from relpos.parity.sides.base import Answer, gradient_of
from relpos.weights import Weights, export

__all__ = [
    "ENGINE",
    "SCORES",
    "SIDES",
    "bits_check",
    "distance_of_pair",
    "layer_checks",
    "pair_name",
]

ENGINE = "onnxruntime"
#: Who is judged by the oracle, each alone.
SIDES = (ENGINE, "torch", "flax")
#: Name of the position scores among a side's comparisons.
SCORES = "position scores"
_DTYPE = "float32"


def distance_of_pair(index: tuple[int, ...]) -> int:
    """The distance j - i of an entry [h, i, j] of scores."""
    _, i, j = index
    return j - i


def pair_name(first: str, second: str) -> str:
    """Two sides as one that can be right or wrong."""
    return f"{first} vs {second}"


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
    return compare(truth.scores, scores, what=SCORES, dtype=_DTYPE, distance_of=distance_of_pair)


def bits_check(voice: Voice, side: str, back: Weights) -> Check:
    """The weights that a side holds, written in the voice's own layout: the original's bits."""
    names, _ = export(back, "vits", prefix=voice.prefix)
    comparisons = [
        compare_exact(_digest(array), _digest(names[name]), what=f"SHA-256 of {name}")
        for name, array in voice.original.items()
        if name in names
    ]
    comparisons += [
        Comparison(name, problem="is on one side only")
        for name in sorted(names.keys() ^ voice.original.keys())
    ]
    return Check("weights", "back in the voice's layout", side, "", tuple(comparisons))


def _digest(array: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The hash of an array's bytes and shape, as 32 whole numbers."""
    digest = hashlib.sha256(str(array.shape).encode())
    digest.update(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(digest.digest(), np.uint8)
