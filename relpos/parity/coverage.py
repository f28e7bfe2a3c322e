"""Did the cases read every table row that exists? If not, how long would the input have to be?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from relpos.oracle import Precision, Result
from relpos.oracle.attention import param_leaves
from relpos.oracle.number import Tape
from relpos.oracle.schemes import Token, scheme_oracle
from relpos.parity.comparison import compare_exact
from relpos.parity.report import Check
from relpos.parity.roster import Row
from relpos.schemes import Scheme

__all__ = ["coverage", "entry_distances"]

#: Distances tried when asking which table entries exist at all.
REACH = 1024


def entry_distances(
    scheme: Scheme, num_heads: int, head_dim: int = 2
) -> dict[str, dict[tuple[int, ...], int]]:
    """For each table, the entries that some distance reads, each with the nearest such distance.

    An entry that no distance reads is not listed: T5's bucket for "after the query, by nothing".

    Example:
        >>> from relpos import Shaw
        >>> entry_distances(Shaw(left=1, right=0, values=False), num_heads=3)
        {'key_table': {(0, 1): 0, (0, 0): -1}}
    """
    if not scheme.parameters(num_heads, head_dim):
        return {}
    tape = Tape(Precision.of("float64"))
    table = scheme.parameters(num_heads, head_dim)
    leaves = param_leaves(
        scheme,
        {p.name: np.zeros(p.shape) for p in table},
        tape,
        num_heads=num_heads,
        head_dim=head_dim,
    )
    oracle = scheme_oracle(scheme, leaves, tape, num_heads)
    x = tape.constant(np.zeros(head_dim))
    of_query, of_key = (
        None if projection is None else tape.constant(np.zeros(projection.width))
        for projection in (scheme.query_projection, scheme.key_projection)
    )
    found: dict[str, dict[tuple[int, ...], int]] = {p.name: {} for p in table}
    existing = sum(math.prod(p.shape[: len(p.shape) - p.rank][1:]) for p in table)
    for at, other in _pairs(scheme):
        if sum(map(len, found.values())) == existing:
            break
        query, key = Token(x, at, of_query), Token(x, other, of_key)
        oracle.scores(0, query, [key], 1.0)
        oracle.value(0, x, query, key)
        for name, leaf in leaves.items():
            for entry in leaf.read:
                found[name].setdefault(entry, other - at)
    # Every head reads alike, each from its own table where it has one.
    return {
        p.name: {
            (h, *entry[1:]): distance
            for h in range(num_heads if p.axes[0] == "heads" else 1)
            for entry, distance in found[p.name].items()
        }
        for p in table
    }


def _pairs(scheme: Scheme) -> list[tuple[int, int]]:
    """Pairs of positions that read every table entry that exists, the nearest first."""
    if scheme.position_limits is None:
        lowest, highest = scheme.limits or (-REACH, REACH)
        pairs = [(0, distance) for distance in range(lowest, highest + 1)]
    else:
        lowest, highest = scheme.position_limits
        places = range(lowest, highest + 1)
        pairs = [(at, other) for at in places for other in places]
    return sorted(pairs, key=lambda pair: abs(pair[1] - pair[0]))


def coverage(row: Row, results: Iterable[tuple[int, Result]]) -> tuple[Check, dict[str, Any]]:
    """Whether cases read all of a row's tables; INCONCLUSIVE if they did not.

    Args:
        row: The roster's row.
        results: Pairs of the number of heads and the oracle's result, one per case.

    Returns:
        The check, and what was read in plain JSON types.
    """
    distances: set[int] = set()
    missing: dict[str, Mapping[tuple[int, ...], int]] = {}
    counts: dict[str, str] = {}
    comparisons = []
    by_heads: dict[int, list[Result]] = {}
    for heads, result in results:
        by_heads.setdefault(heads, []).append(result)
        distances |= result.distances
    # Heads differ between cases, so a table counts as read if the cases with some H read it all.
    for heads, found in by_heads.items():
        for name, entries in entry_distances(row.scheme, heads, row.d).items():
            read = {entry for result in found for entry in result.rows[name]}
            unread = {entry: d for entry, d in entries.items() if entry not in read}
            if name not in missing or len(unread) < len(missing[name]):
                missing[name] = unread
                counts[name] = f"{len(entries) - len(unread)} of {len(entries)}"
    about = {
        "distances": [min(distances), max(distances), len(distances)] if distances else [],
        "entries read": counts,
    }
    doubts = []
    for name, left in missing.items():
        if left:
            farthest = max(left.values(), key=abs)
            doubts.append(
                f"{len(left)} entries of {name} were never read, such as that of distance "
                f"{farthest}: an input of length {abs(farthest) + 1} reads it"
            )
        comparisons.append(
            compare_exact(np.zeros(1, int), np.array([len(left)]), what=f"{name} unread")
        )
    if not missing:
        # Without a table, a scheme is exercised if keys on both sides of a query were read.
        both = (
            np.array([min(distances) < 0, max(distances) > 0]) if distances else np.zeros(2, bool)
        )
        comparisons.append(compare_exact(np.ones(2, bool), both, what="distances of both signs"))
    check = Check(
        row.scheme.name,
        f"{row.name}: table entries read",
        "rows whose table entries are all read",
        comparisons=() if doubts else tuple(comparisons),
        doubt="; ".join(doubts) or None,
    )
    return check, about
