"""The formulas as float64 loops: slow, obviously right, shared with nothing.

Used by the tests, the harness and nobody else. See `relpos.oracle.number` for how a value, its
gradient and the error allowed for both come from one formula.
"""

from relpos.oracle.attention import Result, attention, relative_scores
from relpos.oracle.layer import layer
from relpos.oracle.number import Estimate, Precision

__all__ = ["Estimate", "Precision", "Result", "attention", "layer", "relative_scores"]
