"""What a run found: times round by round, peaks of memory, and what could not be measured."""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass, field
from typing import Any

__all__ = ["PLAIN", "RATE", "Measurement", "Result"]

#: The form of the large matrix product that gives the machine's rate.
RATE = "matrix product"

#: Plain attention without positions, by framework and form: what a time is told as a multiple of.
PLAIN = {
    ("torch", "function"): "scaled_dot_product_attention",
    ("torch", "layer"): "plain layer",
    ("jax", "function"): "jax.nn.dot_product_attention",
}


@dataclass
class Measurement:
    """One contender at one length, in one direction.

    Attributes:
        name: The contender.
        framework: `torch` or `jax`.
        form: `function` or `layer`.
        work: What it computes.
        ours: Whether it is relpos.
        direction: `forward` or `both`.
        L: The length.
        operations: Floating-point operations that the work needs.
        seconds: One time per round.
        peak: Most bytes held beyond inputs and parameters; None if not measured.
        problem: Why there is no time.
    """

    name: str
    framework: str
    form: str
    work: str
    ours: bool
    direction: str
    L: int
    operations: float
    seconds: list[float] = field(default_factory=list)
    peak: int | None = None
    problem: str = ""

    @property
    def median(self) -> float | None:
        """The median time in seconds."""
        return statistics.median(self.seconds) if self.seconds else None


@dataclass
class Result:
    """A whole run.

    Attributes:
        environment: The machine, the packages and the sizes.
        measurements: Everything measured.
        missing: Contenders that could not take part, with the reason.
        seconds: How long the run took.
        stopped: It was interrupted: whole rounds are here, and less than was asked for.
    """

    environment: dict[str, Any] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    stopped: bool = False

    def find(self, name: str, direction: str, L: int) -> Measurement | None:
        """The measurement of a contender."""
        for each in self.measurements:
            if (each.name, each.direction, each.L) == (name, direction, L):
                return each
        return None

    def ratio(self, measured: Measurement, to: str) -> tuple[float, float, float] | None:
        """Lower quartile, median and upper quartile of the ratio, round by round; None without."""
        other = self.find(to, measured.direction, measured.L)
        if other is None or not other.seconds or not measured.seconds:
            return None
        ratios = [a / b for a, b in zip(measured.seconds, other.seconds, strict=True)]
        if len(ratios) == 1:
            return ratios[0], ratios[0], ratios[0]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return low, middle, high

    def share(self, measured: Measurement) -> float | None:
        """The part of the machine's rate of matrix products that was reached, round by round."""
        for rate in self.rates():
            if (rate.framework, rate.L) == (measured.framework, measured.L) and measured.seconds:
                pairs = zip(measured.seconds, rate.seconds, strict=True)
                ratio = statistics.median(reference / seconds for seconds, reference in pairs)
                return ratio * measured.operations / rate.operations
        return None

    def rates(self) -> list[Measurement]:
        """The large matrix products, one per framework and length."""
        return [each for each in self.measurements if each.form == RATE and each.seconds]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "environment": self.environment,
            "seconds": self.seconds,
            "stopped": self.stopped,
            "matrix_product_rates": {
                f"{each.framework} L={each.L}": [each.operations / t for t in each.seconds]
                for each in self.rates()
            },
            "missing": self.missing,
            "measurements": [
                {
                    **dataclasses.asdict(each),
                    "median": each.median,
                    "ratio_to_plain": self.ratio(each, PLAIN[each.framework, each.form]),
                    "ratio_to_torch_plain": self.ratio(each, PLAIN["torch", each.form]),
                    "share_of_rate": self.share(each),
                }
                for each in self.measurements
                if each.form != RATE
            ],
        }
