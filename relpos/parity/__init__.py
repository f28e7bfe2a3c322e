"""The parity harness: judges any implementation against the float64 oracle.

The core is generic: `compare` holds one array against an `Estimate`, a `Check` collects the
comparisons of one side, a `Report` the checks of a run. Cases, the roster of schemes, the sides
and the mutations that prove the harness stand in modules of their own.
"""

from relpos.oracle.number import Estimate, Precision
from relpos.parity.comparison import Comparison, compare, compare_exact, compare_pair
from relpos.parity.report import Check, Report
from relpos.parity.verdict import Verdict

__all__ = [
    "Check",
    "Comparison",
    "Estimate",
    "Precision",
    "Report",
    "Verdict",
    "compare",
    "compare_exact",
    "compare_pair",
]
