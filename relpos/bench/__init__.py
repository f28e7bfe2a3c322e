"""What relative positions cost, measured beside what people use instead.

Every time is one of many taken in turn in one process, and is told as a ratio to plain attention
without positions in the same round, because machines differ and are shared. Memory is measured in
fresh processes. `relpos bench` is the command.
"""

from relpos.bench.contender import Calls, Contender, Size
from relpos.bench.result import Measurement, Result

__all__ = ["Calls", "Contender", "Measurement", "Result", "Size"]
