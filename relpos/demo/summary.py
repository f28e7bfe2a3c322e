"""The last screen: what was proved, and what it is good for."""

from __future__ import annotations

import math
from pathlib import Path

from relpos.demo.judge import ENGINE, pair_name
from relpos.demo.screen import Screen
from relpos.parity.report import Report
from relpos.parity.verdict import Verdict

__all__ = ["summarise"]


def summarise(report: Report, out: Path, screen: Screen) -> None:
    """Five lines on a PASS, what is wrong on anything else, and where the files are."""
    seconds = f"in {report.seconds:.0f} s"
    if report.verdict is Verdict.PASS:
        layers = report.details["voice"]["layers"]
        engine = _worst(report, [pair_name(side, ENGINE) for side in ("torch", "flax")])
        exact = _worst(report, ["torch", "flax"])
        errors = [f["error"] for f in report.details["wrong_rule"]["findings"]]
        screen.verdict(report.verdict, f"{report.entries:,} numbers compared {seconds}")
        for text in (
            f"1. {layers} attention layers of a real voice run in PyTorch and in JAX/Flax,",
            "   one layer class each, the same weights.",
            "2. Both give what onnxruntime gives, an engine that none of us wrote:",
            f"   at most {engine:.2f} times what two float32 results may differ by.",
            "3. Both give what float64 loops give, and their gradients do too:",
            f"   at most {exact:.2f} times what float32 may be wrong by.",
            "4. The weights went in and came back with every bit the same.",
            "5. A wrong rule runs just as smoothly and is off by "
            f"{min(errors):.1f} to {max(errors):.1f}: it was named.",
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


def _worst(report: Report, sides: list[str]) -> float:
    """The worst ratio of these sides; infinite where one was not compared at all."""
    ratios = [report.worst_ratio(side=side) for side in sides]
    return max(math.inf if ratio is None else ratio for ratio in ratios)
