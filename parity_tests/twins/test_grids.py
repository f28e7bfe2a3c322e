"""Schemes of grids: published numbers of offsets and coordinates, and positions off the grid."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import relpos_jax
import relpos_torch
from parity_tests.twins.twin import draw, draw_params, passes, unchecked
from relpos import BEiT, Decomposed2D, Scheme, Swin2D, SwinV2
from relpos.oracle import Estimate
from relpos.oracle.schemes.swin_v2 import coordinate
from relpos.parity import compare, compare_exact
from relpos.schemes.base import normal, zeros

# The authors' own numbers of offsets, query minus key.
PUBLISHED = {
    (2, 2): [[4, 3, 1, 0], [5, 4, 2, 1], [7, 6, 4, 3], [8, 7, 5, 4]],
    (2, 3): [
        [7, 6, 5, 2, 1, 0],
        [8, 7, 6, 3, 2, 1],
        [9, 8, 7, 4, 3, 2],
        [12, 11, 10, 7, 6, 5],
        [13, 12, 11, 8, 7, 6],
        [14, 13, 12, 9, 8, 7],
    ],
}


def rows_read(twin: Any, scheme: Scheme) -> Any:
    """The number of the table entry that each pair reads: the scores of a table of its numbers."""
    count = scheme.parameters(1, 1)[0].shape[1]
    last = scheme.position_limits
    assert last is not None
    q = np.zeros((last[1] + 1, 1))
    package = relpos_torch if twin.name == "torch" else relpos_jax
    table = {"bias_table": twin.array(np.arange(float(count)))}
    scores = package.relative_scores(twin.array(q), twin.array(q), scheme, table)
    return twin.numpy(scores).astype(int)


@pytest.mark.parametrize("window", PUBLISHED)
def test_offsets_are_the_published_ones_counted_from_the_other_end(
    twin: Any, window: tuple[int, int]
) -> None:
    published = np.array(PUBLISHED[window])
    last = (2 * window[0] - 1) * (2 * window[1] - 1) - 1
    passes(compare_exact(last - published, rows_read(twin, Swin2D(*window)), what="offsets"))
    with_class = np.full((len(published) + 1,) * 2, last + 1)
    with_class[:, 0] = last + 2
    with_class[0, 0] = last + 3
    with_class[1:, 1:] = last - published
    passes(compare_exact(with_class, rows_read(twin, BEiT(*window)), what="entries"))


def test_coordinates_are_logarithms_of_what_the_network_was_trained_with() -> None:
    corner, middle, grown = 1.056641667147, 0.773976031629, 1.393776588238
    for scheme, first in (
        (SwinV2(8, 8), corner),
        (SwinV2(16, 16, pretrained_height=8, pretrained_width=8), grown),
    ):
        found = scheme.coordinates()
        # The first offset is that to the key farthest up and left: query minus key is positive.
        passes(compare(_to_digits(first, -first), found[[0, -1], 0]))
        np.testing.assert_array_equal(found, -found[::-1])
    row = [corner, middle, 0.0, -middle, -corner]
    passes(compare(_to_digits(*row), SwinV2(1, 3).coordinates()[:, 1]))
    passes(compare(_to_digits(*row), np.array([coordinate(-d, 3) for d in range(-2, 3)])))
    # A side of one cell has one offset, and nothing to be divided by.
    assert (SwinV2(1, 3).coordinates()[:, 0] == 0).all()


def _to_digits(*values: float) -> Estimate:
    """Numbers that are known to twelve digits."""
    return Estimate(np.array(values), np.full(len(values), 0.5e-12))


def test_what_heads_share_and_how_it_begins() -> None:
    H, d = 3, 5
    count = {
        scheme: sum(int(np.prod(p.shape)) for p in scheme.parameters(H, d))
        for scheme in (
            Swin2D(2, 4),
            BEiT(2, 4),
            Decomposed2D(2, 4),
            Decomposed2D(2, 4, per_head=True),
            SwinV2(2, 4, hidden=7),
        )
    }
    assert list(count.values()) == [3 * 21, 3 * 24, (3 + 7) * 5, 3 * (3 + 7) * 5, 2 * 7 + 7 + 3 * 7]
    begins = {
        p.init for scheme in (Swin2D(2, 4), Decomposed2D(2, 4)) for p in scheme.parameters(H, d)
    }
    assert begins == {normal(0.02)}
    assert BEiT(2, 4).parameters(H, d)[0].init == zeros()


@pytest.mark.parametrize("scheme", [Swin2D(2, 3), BEiT(2, 3), Decomposed2D(2, 3)])
def test_a_cell_off_the_grid_is_nan_where_positions_cannot_be_seen(scheme: Any) -> None:
    L, d = 5, 3
    last = scheme.position_limits[1]
    q = draw(1, L, d)
    at, others = np.array([0, 2, last + 1, 3, -1]), np.array([last, last + 1, 1, -1, 0])
    off = np.array([False, False, True, False, True])[:, None] | np.array(
        [False, True, False, True, False]
    )
    params = {name: table[0] for name, table in draw_params(scheme, 1, d).items()}

    def in_torch(i: Any, j: Any) -> Any:
        tables = {name: torch.tensor(table) for name, table in params.items()}
        x = torch.tensor(q)
        return relpos_torch.relative_scores(
            x, x, scheme, tables, query_positions=i, key_positions=j
        )

    def in_jax(i: Any, j: Any) -> Any:
        tables = {name: jnp.asarray(table) for name, table in params.items()}
        x = jnp.asarray(q)
        return relpos_jax.relative_scores(x, x, scheme, tables, query_positions=i, key_positions=j)

    with unchecked():
        one_row = torch.func.vmap(in_torch)(torch.tensor(at)[None], torch.tensor(others)[None])
    scores = one_row[0].numpy(), np.asarray(jax.jit(in_jax)(at, others))
    for found in scores:
        np.testing.assert_array_equal(np.isnan(found), off)


def test_the_network_is_asked_once_per_offset() -> None:
    scheme, d = SwinV2(5, 7, hidden=16), 2
    params = {name: torch.tensor(table) for name, table in draw_params(scheme, 3, d).items()}
    q = torch.zeros(1, 3, 35, d, dtype=torch.float64)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            largest = max(largest, out.numel() if isinstance(out, torch.Tensor) else 0)
            return out

    with Watch():
        relpos_torch.attention(q, q, q, scheme, params)
    assert largest < 35 * 35 * 16
