"""Whole numbers and truth values, bit for bit: buckets, row maps, masks."""

from __future__ import annotations

import numpy as np

from relpos.distance import t5_bucket, t5_row_map
from relpos.oracle.attention import allowed_pairs, default_positions
from relpos.oracle.schemes.t5 import bucket
from relpos.parity.comparison import compare_exact
from relpos.parity.report import Check
from relpos.parity.roster import Row
from relpos.parity.sides import Side
from relpos.schemes import T5

__all__ = ["check_buckets", "check_masks"]


def check_buckets(row: Row) -> Check:
    """T5's buckets and their row map against the oracle's, far past the last bucket."""
    scheme = row.scheme
    assert isinstance(scheme, T5)
    near = np.arange(-2 * scheme.max_distance, 2 * scheme.max_distance + 1)
    far = np.array([-(10**6), -4097, 4097, 10**6])
    distances = np.concatenate([near, far])
    expected = np.array([bucket(scheme, int(distance)) for distance in distances], np.int32)
    settings = (scheme.num_buckets, scheme.max_distance, scheme.bidirectional)
    found = {
        "bucket": t5_bucket(
            distances,
            num_buckets=scheme.num_buckets,
            max_distance=scheme.max_distance,
            bidirectional=scheme.bidirectional,
        ),
        "row map": t5_row_map(*settings)(distances),
    }
    comparisons = tuple(
        compare_exact(expected, rows, what=what, distance_of=lambda index: int(distances[index]))
        for what, rows in found.items()
    )
    return Check(
        scheme.name,
        f"{row.name}: {len(distances)} distances",
        "whole numbers of relpos.distance",
        comparisons=comparisons,
    )


def check_masks(row: Row, side: Side, framework: str) -> Check:
    """Who may attend to whom, in every case of a row, against the oracle's loop."""
    comparisons = []
    for case in row.cases:
        inputs = case.inputs("float32")
        shape = (case.B, case.H, case.Lq, case.Lk)
        at, others = default_positions(
            case.B, case.Lq, case.Lk, inputs.query_positions, inputs.key_positions
        )
        expected = allowed_pairs(shape, inputs.mask, case.causal, at, others)
        what = f"mask of {case.name}"
        comparisons.append(compare_exact(expected, side.allowed(case), what=what))
    return Check(
        row.scheme.name,
        f"{row.name}: masks",
        f"masks of {framework}",
        comparisons=tuple(comparisons),
    )
