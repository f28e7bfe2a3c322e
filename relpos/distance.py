"""Distance to table row, in whole numbers: no logarithm, no rounding.

A distance is d = j - i, key position minus query position. A rule that gives every distance a row
is stored as `RowMap`: explicit rows over a range of distances, constant beyond both of its ends.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "RowMap",
    "clamped_range",
    "deberta_bucket",
    "deberta_row_map",
    "t5_bucket",
    "t5_row_map",
]


@dataclass(frozen=True, eq=False)
class RowMap:
    """The row of every distance: `rows[clip(d - first, 0, len(rows) - 1)]`.

    Attributes:
        first: The distance whose row is `rows[0]`.
        rows: One row number per distance from `first` on, int32.
    """

    first: int
    rows: NDArray[np.int32]

    def __call__(self, distance: NDArray[np.integer]) -> NDArray[np.int32]:
        """The rows of integer distances of any shape."""
        index = np.clip(np.asarray(distance, np.int64) - self.first, 0, len(self.rows) - 1)
        rows: NDArray[np.int32] = self.rows[index]
        return rows


def clamped_range(distances: tuple[int, int] | None, clamp: int) -> tuple[int, int]:
    """The lowest and highest of some distances, farther ones than `clamp` counting as it.

    None is every distance.

    Example:
        >>> clamped_range((-3, 17), 8)
        (-3, 8)
    """
    lowest, highest = (-clamp, clamp) if distances is None else distances
    return min(max(lowest, -clamp), clamp), min(max(highest, -clamp), clamp)


def t5_bucket(
    distance: NDArray[np.integer],
    *,
    num_buckets: int,
    max_distance: int,
    bidirectional: bool,
) -> NDArray[np.int32]:
    """T5's bucket of each distance, exact.

    With n = |d| (causal: max(-d, 0)), E exact buckets and F buckets per side,

        bucket(n) = n                                                        if n < E
                  = min(F - 1, E + floor((F - E) log(n/E) / log(max_distance/E)))   otherwise

    and F is added for d > 0 when bidirectional. The floor of the logarithm is decided by comparing
    powers of whole numbers: the defaults 16, 32 and 64 sit exactly on boundaries, where a
    logarithm one unit in the last place low picks the wrong row.

    Args:
        distance: Integer distances j - i of any shape.
        num_buckets: Buckets in all.
        max_distance: Distances from here on share the last bucket.
        bidirectional: Separate buckets for keys after the query.

    Returns:
        Buckets of the same shape, int32.

    Example:
        >>> t5_bucket(np.array([-20, 0, 20]), num_buckets=32, max_distance=128, bidirectional=True)
        array([10,  0, 26], dtype=int32)
    """
    distance = np.asarray(distance, np.int64)
    per_side = num_buckets // 2 if bidirectional else num_buckets
    n = np.abs(distance) if bidirectional else np.maximum(-distance, 0)
    starts = _bucket_starts(per_side, per_side // 2, max_distance)
    bucket: NDArray[np.int64] = np.searchsorted(starts, n, side="right") - 1
    if bidirectional:
        bucket = np.where(distance > 0, bucket + per_side, bucket)
    return bucket.astype(np.int32)


@functools.cache
def t5_row_map(num_buckets: int, max_distance: int, bidirectional: bool) -> RowMap:
    """`t5_bucket` as a `RowMap`: explicit up to the last bucket's first distance on each side."""
    per_side = num_buckets // 2 if bidirectional else num_buckets
    farthest = int(_bucket_starts(per_side, per_side // 2, max_distance)[-1])
    distances = np.arange(-farthest, (farthest if bidirectional else 0) + 1)
    rows = t5_bucket(
        distances,
        num_buckets=num_buckets,
        max_distance=max_distance,
        bidirectional=bidirectional,
    )
    rows.setflags(write=False)
    return RowMap(-farthest, rows)


@functools.cache
def _bucket_starts(per_side: int, exact: int, max_distance: int) -> NDArray[np.int64]:
    """The smallest n of every bucket on one side.

    Logarithmic bucket number k begins at the smallest n with
    (n / exact) ** m >= (max_distance / exact) ** k, where m is the number of such buckets.
    """
    m = per_side - exact
    starts = list(range(exact))
    for k in range(m):
        # Python's whole numbers have no upper limit, so both sides are exact.
        target = max_distance**k * exact ** (m - k)
        low, high = exact, max_distance
        while low < high:
            middle = (low + high) // 2
            if middle**m >= target:
                high = middle
            else:
                low = middle + 1
        starts.append(low)
    return np.array(starts, np.int64)


def deberta_bucket(
    distance: NDArray[np.integer], *, buckets: int, max_distance: int
) -> NDArray[np.int32]:
    """DeBERTa's bucket of each distance, exact: from -buckets to buckets, 0 for distance 0.

    With n = |d| and m = buckets / 2,

        bucket(n) = n                                                              if n <= m
                  = min(2m, m + ceil((m - 1) log(n/m) / log((max_distance - 1)/m)))  otherwise

    with the sign of d. The ceiling is decided by comparing powers of whole numbers. From
    `max_distance` on all is bucket 2m: no table has a row for more.

    Args:
        distance: Integer distances j - i of any shape.
        buckets: Twice the distances that are told apart on each side.
        max_distance: Distances from here on share the last bucket.

    Returns:
        Buckets of the same shape, int32.

    Example:
        >>> deberta_bucket(np.array([-600, -200, 0, 128, 130]), buckets=256, max_distance=512)
        array([-256, -169,    0,  128,  130], dtype=int32)
    """
    distance = np.asarray(distance, np.int64)
    starts = _deberta_bucket_starts(buckets // 2, max_distance)
    bucket = np.searchsorted(starts, np.abs(distance), side="right") - 1
    signed: NDArray[np.int64] = np.sign(distance) * bucket
    return signed.astype(np.int32)


@functools.cache
def deberta_row_map(buckets: int, max_distance: int) -> RowMap:
    """The row of each distance in a table of 2 * buckets rows, in ascending order of distances."""
    distances = np.arange(-max_distance, max_distance + 1)
    bucket = deberta_bucket(distances, buckets=buckets, max_distance=max_distance)
    rows = np.clip(bucket + (buckets - 1), 0, 2 * buckets - 1).astype(np.int32)
    rows.setflags(write=False)
    return RowMap(-max_distance, rows)


@functools.cache
def _deberta_bucket_starts(m: int, max_distance: int) -> NDArray[np.int64]:
    """The smallest n of every bucket from 0 to 2m.

    Logarithmic bucket number k ends at the largest n with
    (n / m) ** (m - 1) <= ((max_distance - 1) / m) ** k.
    """
    starts = list(range(m + 1))
    for k in range(m):
        target = (max_distance - 1) ** k * m ** (m - 1 - k)
        low, high = m, max_distance - 1
        while low < high:
            middle = (low + high + 1) // 2
            if middle ** (m - 1) <= target:
                low = middle
            else:
                high = middle - 1
        starts.append(low + 1)
    return np.array(starts, np.int64)
