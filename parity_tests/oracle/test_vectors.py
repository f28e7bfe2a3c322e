"""Schemes with a vector per distance that are, in part, one another."""

from __future__ import annotations

import numpy as np

from parity_tests.twins.twin import draw, draw_params
from relpos import MusicTransformer, Shaw, ShawBoth, Windowed, oracle

B, H, L, d = 2, 3, 7, 5


def test_music_transformer_is_shaw_up_to_the_query_and_nothing_beyond_it() -> None:
    q, k, v = (draw(n, B, H, L, d) for n in range(3))
    for scheme, other in (
        (MusicTransformer(3), Shaw(3, 0, values=False, per_head=True)),
        (MusicTransformer(3, beyond="zero"), Windowed(3, 0, values=False, per_head=True)),
    ):
        params = draw_params(scheme, H, d)
        same, others = (
            oracle.attention(each, params, q, k, v, causal=True).output.value
            for each in (scheme, other)
        )
        np.testing.assert_array_equal(same, others)
    one_head = {name: table[0] for name, table in draw_params(MusicTransformer(3), H, d).items()}
    scores = oracle.relative_scores(MusicTransformer(3), one_head, q[0, 0], k[0, 0]).output.value
    assert (scores[np.triu_indices(L, 1)] == 0.0).all()
    assert (scores[np.tril_indices(L)] != 0.0).all()


def test_shaw_both_is_shaw_seen_from_both_sides() -> None:
    q, k = draw(1, L, d), draw(2, L, d)
    table = draw(3, 6, d)
    both = oracle.relative_scores(ShawBoth(2, 3), {"key_table": table}, q, k)
    from_query = oracle.relative_scores(Shaw(2, 3, values=False), {"key_table": table}, q, k)
    # Seen from the keys a distance has the other sign: the rows stand backwards.
    backwards = {"key_table": table[::-1]}
    from_key = oracle.relative_scores(Shaw(3, 2, values=False), backwards, k, q)
    expected = from_query.output.value + from_key.output.value.T
    difference = np.abs(both.output.value - expected)
    assert (difference <= both.output.budget).all()
