"""Pictures of what a scheme does to scores and values, drawn from the float64 oracle.

No framework is needed: `pattern_of` asks the oracle, `picture` draws the answer with matplotlib
(the extra `plot`).
"""

from relpos.plot.pattern import Pattern, fresh, longest, pattern_of

__all__ = ["Pattern", "fresh", "longest", "pattern_of"]
