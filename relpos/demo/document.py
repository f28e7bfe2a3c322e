"""The report as a document: for somebody who was not there."""

from __future__ import annotations

from relpos.demo.figures import Line
from relpos.demo.phonemes import IPA, Tokens
from relpos.demo.voice import Voice
from relpos.demo.wrong_rule import Finding
from relpos.parity.report import Report
from relpos.parity.verdict import Verdict

__all__ = ["document"]


def document(
    voice: Voice,
    tokens: Tokens,
    report: Report,
    lines: list[Line],
    findings: list[Finding],
    command: str,
) -> str:
    """The report in Markdown."""
    settings, layers = voice.settings, list(voice.weights.layers)
    where = f", in IPA `{IPA}`" if tokens.spoken else ""
    sections = [
        f"# One voice, two frameworks: {report.verdict.value}",
        f"{len(layers)} attention layers of {voice.name} (width {settings.embed_dim}, "
        f"{settings.num_heads} heads of {settings.width}, rule `{settings.scheme}`) were read from "
        "an ONNX file and run in PyTorch and in JAX/Flax on the inputs that they get in the model "
        f"itself: {tokens.note}{where}, {len(tokens.ids)} tokens. Judges were a float64 oracle, "
        "written as loops, and onnxruntime. "
        f"{report.comparisons} arrays, {report.entries:,} numbers compared.",
        "![The learned pattern by distance](pattern.png)",
        "## Errors, as multiples of the budget",
        "The budget of every number follows from float32's rounding and the sums that lead to it; "
        "nobody chose it, and more than 1 fails. Two sides may differ by both budgets together. "
        "Gradients are those of one random projection of the output, by the input and by every "
        "parameter, the worst of all; onnxruntime gives none.",
        _table(lines, layers, ratios=True),
        "## The same, absolute",
        _table(lines, layers, ratios=False),
        "## Weights, there and back",
        f"{voice.audit}. From the layers of each framework they were written back in the voice's "
        f"own names and shapes: {_same_bits(report)} have the original's bits.",
        "## A wrong rule, on purpose",
        "Outside the window this model adds nothing. The same tables under the rule that repeats "
        "the last row there (`Shaw`) give numbers that look as good and are wrong:",
        _findings(findings),
        "## Where the time went",
        "\n".join(
            f"- {name}: {seconds:.1f} s" for name, seconds in report.details["seconds"].items()
        ),
        "## To repeat it",
        f"    {command}",
        "\n".join(f"- {name}: {value}" for name, value in report.environment.items()),
    ]
    return "\n\n".join(sections) + "\n"


def _same_bits(report: Report) -> str:
    back = [c for check in report.checks if check.subject == "weights" for c in check.comparisons]
    same = sum(comparison.verdict is Verdict.PASS for comparison in back)
    return f"{same} of {len(back)} arrays"


def _table(lines: list[Line], layers: list[str], *, ratios: bool) -> str:
    head = ["what", "compared", *(f"layer {layer}" for layer in layers)]
    rows = [
        [
            line.group,
            line.name,
            *(
                [f"{ratio:.3f}" for ratio in line.ratios]
                if ratios
                else [f"{error:.1e}" for error in line.errors]
            ),
        ]
        for line in lines
    ]
    return _markdown(head, rows, text=2)


def _findings(findings: list[Finding]) -> str:
    head = [
        "layer",
        "output wrong by",
        "x budget",
        "scores wrong inside the window",
        "scores wrong outside",
        "worst at j - i",
        "caught",
    ]
    rows = [
        [
            finding.layer,
            f"{finding.error:.2f}",
            f"{finding.ratio:,.0f}",
            str(finding.wrong_inside),
            f"{finding.wrong_outside} of {finding.outside}",
            str(finding.distance),
            "yes" if finding.caught else "NO",
        ]
        for finding in findings
    ]
    return _markdown(head, rows, text=1)


def _markdown(head: list[str], rows: list[list[str]], *, text: int) -> str:
    """A table; the columns after the first `text` are numbers."""
    rule = ["---"] * text + ["---:"] * (len(head) - text)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))
