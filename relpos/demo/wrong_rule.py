"""What a wrong rule would do: the voice's own weights, clipped where they should end.

`Windowed` adds nothing outside its window; `Shaw` repeats its last row there. Both take the same
tables, both run, both give plausible numbers. The harness must fail the second in every layer, name
it, and point outside the window.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from relpos.demo.judge import SCORES, SIDES, distance_of_pair
from relpos.demo.truth import Question, Truth
from relpos.demo.voice import Voice
from relpos.parity.comparison import compare, compare_exact
from relpos.parity.report import Check, Report
from relpos.parity.verdict import Verdict
from relpos.schemes import Shaw
from relpos.weights import Weights

if TYPE_CHECKING:
    from relpos.demo.torch_layers import TorchLayers

__all__ = ["SIDE", "Finding", "clipped", "try_wrong_rule"]

SIDE = "torch with Shaw"


@dataclass(frozen=True)
class Finding:
    """What the harness found in one layer under the wrong rule.

    Attributes:
        layer: The layer's path.
        error: Largest absolute error of the layer's output.
        ratio: The same as a multiple of the budget, where that is worst.
        wrong_inside: Position scores beyond their budget inside the window.
        wrong_outside: Position scores beyond their budget outside the window.
        outside: Position scores outside the window.
        distance: Distance j - i of the worst one.
        caught: FAIL, by the output and by the scores, and the worst one outside the window.
    """

    layer: str
    error: float
    ratio: float
    wrong_inside: int
    wrong_outside: int
    outside: int
    distance: int | None
    caught: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return dataclasses.asdict(self)


def clipped(voice: Voice) -> Weights:
    """The voice's tensors under the rule that clips."""
    right = voice.scheme
    wrong = Shaw(right.left, right.right, right.keys, right.values, right.per_head)
    settings = dataclasses.replace(voice.settings, scheme=wrong)
    return Weights(dict.fromkeys(voice.weights.layers, settings), voice.weights.tensors)


def try_wrong_rule(
    voice: Voice,
    layers: TorchLayers,
    questions: Mapping[str, Question],
    truths: Mapping[str, Truth],
    right: Report,
) -> tuple[Report, list[Finding], Check]:
    """Judge the wrong rule as any side is judged.

    Args:
        voice: The voice.
        layers: Layers with its weights under the wrong rule (`clipped`).
        questions: One per layer.
        truths: The oracle's answers, under the right rule.
        right: The checks of the right rule, so that the blame can be shared out.

    Returns:
        A report with all these sides, one finding per layer, and the check that all were caught.
    """
    scheme = voice.scheme
    of_layers = [c for c in right.checks if c.side in SIDES and c.subject != "weights"]
    report = Report(checks=of_layers)
    findings = []
    for layer, question in questions.items():
        truth = truths[layer]
        output = compare(truth.layer.output, layers.answer(layer, question)["output"])
        got = layers.position_scores(layer, question)
        scores = compare(truth.scores, got, what=SCORES, distance_of=distance_of_pair)
        report.add(Check(f"layer {layer}", "real input", SIDE, "float32", (output, scores)))
        _, i, j = np.indices(got.shape)
        outside = (j - i < -scheme.left) | (j - i > scheme.right)
        wrong = np.abs(got - truth.scores.value) > truth.scores.budget
        beyond = scores.distance is not None and not (
            -scheme.left <= scores.distance <= scheme.right
        )
        findings.append(
            Finding(
                layer,
                output.atol,
                output.ratio,
                int((wrong & ~outside).sum()),
                int((wrong & outside).sum()),
                int(outside.sum()),
                scores.distance,
                output.verdict is Verdict.FAIL and scores.verdict is Verdict.FAIL and beyond,
            )
        )
    caught = compare_exact(
        np.ones(len(findings), np.bool_),
        np.array([finding.caught or finding.outside == 0 for finding in findings]),
        what="layers in which the harness fails the wrong rule and points outside the window",
    )
    doubt = None
    if not any(finding.outside for finding in findings):
        doubt = "the window covers every distance between these tokens, so both rules are one"
    check = Check("wrong rule", "clipped for windowed", "harness", "", (caught,), doubt=doubt)
    return report, findings, check
