"""Sandwich: known numbers, and the bias that a query has on itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from parity_tests.twins.twin import fails, passes
from relpos import Sandwich, oracle
from relpos.oracle import Estimate
from relpos.parity import compare

#: Of four heads, width 16, from the second frequency on, at the distances from -3 to 0.
ROWS = [
    [-0.233453243547, -0.107788279481, -0.02756803369, 0.0],
    [-0.116726621774, -0.05389413974, -0.013784016845, 0.0],
    [-0.077817747849, -0.035929426494, -0.009189344563, 0.0],
    [-0.058363310887, -0.02694706987, -0.006892008423, 0.0],
]


def test_the_sum_from_the_second_frequency_has_its_known_numbers(twin: Any) -> None:
    x = np.zeros((4, 5))
    everywhere = {"query_positions": np.array([3]), "key_positions": np.arange(4)}
    for head, row in enumerate(ROWS):
        # The numbers are given to twelve places.
        given = Estimate(np.array(row), np.full(4, 5e-13))
        scheme = Sandwich(width=16, max_ratio=Sandwich(width=16).ratios(4)[head], first=1)
        passes(compare(given, oracle.relative_scores(scheme, {}, x[-1:], x).output.value[0]))
        if head in (0, 3):
            passes(compare(given, twin.scores(scheme, {}, x[-1:], x)[0]))
    passes(compare(given, twin.scores(scheme, {}, x[-1:], x, **everywhere)[0]))
    other = dataclasses.replace(scheme, first=0)
    fails(compare(given, twin.scores(other, {}, x[-1:], x)[0]))
