"""The last screen: what was proved, and what it is good for."""

from __future__ import annotations

from pathlib import Path

from relpos.demo.screen import Screen
from relpos.parity.report import Report
from relpos.parity.verdict import Verdict

__all__ = ["summarise"]


def summarise(report: Report, out: Path, screen: Screen) -> None:
    """Five lines on a PASS, what is wrong on anything else, and where the files are."""
    seconds = f"in {report.seconds:.0f} s"
    if report.verdict is Verdict.PASS:
        layers = report.details["voice"]["layers"]
        engine = max(
            report.worst_ratio(side=side, gradients=False) or 0.0
            for side in ("torch against onnxruntime", "flax against onnxruntime")
        )
        worst = max(
            report.worst_ratio(side=side) or 0.0
            for side in ("torch", "flax", "flax against torch")
        )
        findings = report.details["wrong_rule"]["findings"]
        errors = [finding["error"] for finding in findings]
        screen.verdict(report.verdict, f"{report.entries:,} numbers compared {seconds}")
        for text in (
            f"1. {layers} attention layers of a real model run in PyTorch and in JAX/Flax, one "
            "class each.",
            f"2. Both are what onnxruntime computes, an engine that none of us wrote: {engine:.2f} "
            "x the error allowed.",
            f"3. Both are what float64 loops compute, gradients included: {worst:.2f} x the error "
            "allowed.",
            "4. The weights went in and came back with every bit the same.",
            f"5. A wrong rule runs just as smoothly and is off by {min(errors):.1f} to "
            f"{max(errors):.1f}: the harness named it.",
        ):
            screen.line(text)
        screen.line()
        screen.line("That is what relpos is for: the layer, its weights, and the proof. Next:")
        screen.line("  relpos schemes    relpos convert --help    relpos parity --help")
    else:
        screen.verdict(report.verdict, f"{report.entries:,} numbers compared {seconds}")
        for sentence in report.blame():
            screen.line(sentence)
        for check in report.checks:
            if check.verdict is not Verdict.PASS:
                screen.line(f"{check.name}: {check.finding}")
    screen.line()
    screen.line(f"Read {out / 'report.md'}, look at {out / 'pattern.png'}.")
