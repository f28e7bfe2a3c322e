"""What a scheme adds to scores and values, pair by pair and by distance, from the oracle's loops.

    scores[h,i,j] = score(q[h], k[h], i, j) - scale * <q[h], k[h]>        q[h] = k[h] = x[h]
    values[h,d]   = value(v, i, i + d) - v

x[h] is one random vector, the same at every position, so that only positions differ. A scheme that
depends on j - i alone is then a function of the distance, and each distance is asked for once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relpos.errors import SettingError
from relpos.oracle import relative_scores
from relpos.oracle.attention import param_leaves
from relpos.oracle.number import Leaf, Precision, Tape
from relpos.oracle.schemes import Token, scheme_oracle
from relpos.schemes import Scheme

__all__ = ["Pattern", "fresh", "longest", "pattern_of"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Positions on a side of a heat map: more than a printed panel can show.
PIXELS = 256
#: The same, where every pair is a question of its own.
SAMPLES = 64
#: Tokens of a scheme that reads every token between two others.
LONGEST_WHOLE = 96


@dataclass(frozen=True, eq=False)
class Pattern:
    """What a scheme adds. NaN is a pair for which it has no value.

    Attributes:
        scheme: The scheme.
        query_positions: Rows of `scores` [Nq].
        key_positions: Columns of `scores` [Nk].
        scores: Added to scale * <q, k> [H, Nq, Nk].
        distances: The distances j - i of `by_distance` [N], ascending.
        by_distance: Added to scale * <q, k> at each distance [H, N].
        query: The query that `by_distance` is about; None where any gives the same.
        reads_content: Whether another q or k would give other scores.
        value_distances: The distances of `values` [M], ascending.
        values: Added to the values [H, M, d]; [1, M, d] where all heads share it; None if nothing.
    """

    scheme: Scheme
    query_positions: Integers
    key_positions: Integers
    scores: Floats
    distances: Integers
    by_distance: Floats
    query: int | None
    reads_content: bool
    value_distances: Integers
    values: Floats | None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to see: all zero, or nothing at all."""
        return self.values is None and not np.any(np.nan_to_num(self.by_distance))


def fresh(scheme: Scheme, num_heads: int, head_dim: int, seed: int = 0) -> dict[str, Floats]:
    """Parameters of a scheme as a fresh layer has them.

    Example:
        >>> from relpos import T5
        >>> fresh(T5(), num_heads=3, head_dim=8)["bias_table"].shape
        (3, 32)
    """
    rng = np.random.default_rng(seed)
    return {p.name: p.init.draw(rng, p.shape) for p in scheme.parameters(num_heads, head_dim)}


def longest(scheme: Scheme, length: int) -> int:
    """That many tokens, or as many as the scheme has positions for from 0 on."""
    return length if scheme.position_limits is None else min(length, scheme.position_limits[1] + 1)


def pattern_of(
    scheme: Scheme,
    params: Mapping[str, Floats],
    *,
    num_heads: int,
    head_dim: int,
    length: int,
    seed: int = 0,
    scale: float | None = None,
) -> Pattern:
    """Ask the oracle what a scheme adds between any two of `length` tokens.

    Args:
        scheme: The scheme.
        params: Its parameters, named and shaped as `scheme.parameters(H, d)` says.
        num_heads: Heads H.
        head_dim: Head width d.
        length: Tokens L, at positions 0 .. L - 1.
        seed: Of the random vectors x.
        scale: The factor on <q, k>; None takes the scheme's own.

    Raises:
        SettingError: The head width does not suit the scheme, or the length is more than a scheme
            allows that reads every token between two others.

    Example:
        >>> from relpos import T5
        >>> table = {"bias_table": np.arange(32.0)[None]}
        >>> pattern = pattern_of(T5(), table, num_heads=1, head_dim=4, length=3)
        >>> pattern.distances.tolist(), pattern.by_distance[0].tolist()
        ([-2, -1, 0, 1, 2], [2.0, 1.0, 0.0, 17.0, 18.0])
    """
    scheme.check_head_dim(head_dim)
    if length > (most := longest(scheme, length)):
        raise SettingError(
            f"{scheme.name} has positions from 0 to {most - 1} only",
            got=f"length {length}",
            expected=f"at most {most}",
        )
    asked = _Question(scheme, params, num_heads, head_dim, seed, scale)
    at = np.arange(length)
    if scheme.translation_invariant:
        shown = _spread(length, PIXELS)
        distances = _distances(scheme, length)
        # The first token looks ahead and the last one back: no position lies outside the input. A
        # causal scheme looks back alone, at its own token too, which may count for the others.
        ahead_from = 1 if scheme.causal_only else 0
        past, future = distances[distances < ahead_from], distances[distances >= ahead_from]
        last = length - 1
        behind, reads_behind = asked.scores(np.array([last]), past + last)
        ahead, reads_ahead = asked.scores(np.array([0]), future)
        by_distance = np.concatenate([behind[:, 0], ahead[:, 0]], axis=1)
        reads_content, start = reads_behind or reads_ahead, int(-distances[0])
        pairs = shown[None, :] - shown[:, None]
        inside = (pairs >= distances[0]) & (pairs <= distances[-1])
        scores = np.where(inside, by_distance[:, np.where(inside, pairs + start, 0)], np.nan)
        query = None
    else:
        # With the last position: a causal scheme has all its distances there.
        shown = _spread(length, SAMPLES)
        scores, reads_content = asked.scores(shown, shown)
        if reads_content and length > SAMPLES:
            if length > LONGEST_WHOLE:
                raise SettingError(
                    f"{scheme.name} reads every token between two others, which takes long",
                    got=f"length {length}",
                    expected=f"at most {LONGEST_WHOLE}",
                )
            shown = at
            scores, _ = asked.scores(at, at)
        query = int(shown[-1] if scheme.causal_only else shown[len(shown) // 2])
        distances = at - query
        by_distance = asked.scores(np.array([query]), at)[0][:, 0]
    if scheme.causal_only:
        scores = np.where(shown[None, :] > shown[:, None], np.nan, scores)
        by_distance = by_distance[:, distances <= 0]
        distances = distances[distances <= 0]
    value_distances = _distances(scheme, length)
    values = asked.values(value_distances)
    return Pattern(
        scheme,
        shown,
        shown,
        scores,
        distances,
        by_distance,
        query,
        reads_content,
        value_distances,
        values,
    )


class _Question:
    """Asks the oracle about one scheme with its parameters."""

    def __init__(
        self,
        scheme: Scheme,
        params: Mapping[str, Floats],
        H: int,
        d: int,
        seed: int,
        scale: float | None,
    ) -> None:
        self.scheme, self.params, self.H, self.d, self.scale = scheme, params, H, d, scale
        # Two tokens per head: what the second changes is what the content decides.
        rng = np.random.default_rng([seed, 1])
        self.vectors = rng.standard_normal((2, H, d))
        self.query_features, self.key_features = (
            None if read is None else rng.standard_normal((2, H, read.width))
            for read in (scheme.query_projection, scheme.key_projection)
        )

    def scores(self, queries: Integers, keys: Integers) -> tuple[Floats, bool]:
        """What is added between these positions [H, Nq, Nk], and whether it reads the content."""
        query = queries[len(queries) // 2 :][:1]
        near = np.sort(keys[np.argsort(np.abs(keys - query), kind="stable")[:9]])
        reads = not np.array_equal(self._ask(0, query, near), self._ask(1, query, near))
        return self._ask(0, queries, keys), reads

    def _ask(self, which: int, queries: Integers, keys: Integers) -> Floats:
        if not len(keys):
            return np.zeros((self.H, len(queries), 0))
        return np.stack(
            [
                relative_scores(
                    self.scheme,
                    self._of_head(h),
                    np.tile(x, (len(queries), 1)),
                    np.tile(x, (len(keys), 1)),
                    query_positions=queries,
                    key_positions=keys,
                    scale=self.scale,
                    head=h,
                    num_heads=self.H,
                    query_features=_repeated(self.query_features, which, h, len(queries)),
                    key_features=_repeated(self.key_features, which, h, len(keys)),
                ).output.value
                for h, x in enumerate(self.vectors[which])
            ]
        )

    def _of_head(self, h: int) -> dict[str, Floats]:
        """One head's parameters: without the axis of heads, which is the first."""
        return {
            p.name: np.asarray(self.params[p.name], np.float64)[h if p.axes[0] == "heads" else 0]
            for p in self.scheme.parameters(self.H, self.d)
        }

    def values(self, distances: Integers) -> Floats | None:
        """What is added to the values at these distances, [H or 1, N, d], or None."""
        tape = Tape(Precision.of("float64"))
        leaves = param_leaves(self.scheme, self.params, tape, num_heads=self.H, head_dim=self.d)
        oracle = scheme_oracle(self.scheme, leaves, tape, self.H)
        nothing = Leaf(tape, np.zeros((1, self.d)))[(0,)]
        query = Token(nothing, int(-distances[0]))
        keys = [Token(nothing, query.position + int(n)) for n in distances]
        # Most schemes give back what they are given, which one head tells.
        if all(oracle.value(0, nothing, query, key) is nothing for key in keys):
            return None
        added = np.array(
            [[oracle.value(h, nothing, query, key).value for key in keys] for h in range(self.H)]
        )
        if not added.any():
            return None
        return added[:1] if (added == added[:1]).all() else added


def _repeated(features: Floats | None, which: int, h: int, length: int) -> Floats | None:
    return None if features is None else np.tile(features[which, h], (length, 1))


def _distances(scheme: Scheme, length: int) -> Integers:
    """Every distance between two of the tokens that the scheme has a value for."""
    lowest, highest = scheme.limits or (-length, length)
    highest = min(highest, 0 if scheme.causal_only else length - 1)
    return np.arange(max(lowest, 1 - length), highest + 1)


def _spread(length: int, most: int) -> Integers:
    """At most so many of the positions 0 .. length - 1, both ends among them."""
    return np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(np.int64))
