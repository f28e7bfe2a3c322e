"""The roster: every scheme with its settings, situations and wrong inputs.

To add a scheme, add a row per setting that changes what is computed to the file of its family. A
row gets every check of the harness and of the tests: both twins, values and gradients, every mode
and dtype, layers, decoding.
"""

from __future__ import annotations

from relpos.parity.roster import (
    biases,
    buckets,
    content,
    contextual,
    grids,
    rotary,
    sinusoids,
    vectors,
)
from relpos.parity.roster.row import COMMON_WRONGS, Row, Wrong

__all__ = ["COMMON_WRONGS", "FIRST_ROWS", "ROSTER", "Row", "Wrong"]

#: Every scheme and setting that the harness checks, by name.
ROSTER: dict[str, Row] = {
    row.name: row
    for family in (vectors, sinusoids, buckets, biases, content, rotary, contextual, grids)
    for row in family.ROWS
}

#: The first row of each scheme, which stands for it where every row would take too long.
FIRST_ROWS: dict[str, Row] = {row.scheme.name: row for row in reversed(ROSTER.values())}
