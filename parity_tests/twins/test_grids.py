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
from relpos.weights import resize_tables

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


def rows_read(twin: Any, scheme: Scheme, query_positions: Any = None) -> Any:
    """The number of the table entry that each pair reads: the scores of a table of its numbers.

    Of two tables, one entry of each is read: their number is row * columns + column.
    """
    counts = [p.shape[1] for p in scheme.parameters(1, 1)]
    names = [p.name for p in scheme.parameters(1, 1)]
    tables = [np.arange(float(count)) for count in counts]
    if isinstance(scheme, Decomposed2D):
        tables = [counts[1] * tables[0][:, None], tables[1][:, None]]
    last = scheme.position_limits
    assert last is not None
    k = np.zeros((last[1] + 1, 1))
    at = {}
    if query_positions is not None:
        at = {"query_positions": query_positions, "key_positions": np.arange(len(k))}
    q = np.ones((len(at.get("query_positions", k)), 1))
    params = dict(zip(names, tables, strict=True))
    return twin.scores(scheme, params, q, k, **at).astype(int)


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


@pytest.mark.parametrize("window", [(1, 7), (7, 1), (3, 5), (8, 8)], ids=str)
@pytest.mark.parametrize("kind", [Swin2D, BEiT, Decomposed2D], ids=lambda kind: kind.name)
def test_every_entry_has_an_offset_of_its_own_in_windows_of_any_shape(
    twin: Any, kind: Any, window: tuple[int, int]
) -> None:
    if twin.name == "jax" and kind is not Swin2D and window != (3, 5):
        pytest.skip("a compilation for each shape of window: one stands for all")
    y, x = np.divmod(np.arange(window[0] * window[1]), window[1])
    found, count = rows_read(twin, kind(*window)), (2 * window[0] - 1) * (2 * window[1] - 1)
    if kind is BEiT:
        assert found[0, 0] == count + 2
        assert (found[0, 1:] == count).all()
        assert (found[1:, 0] == count + 1).all()
        found = found[1:, 1:]
    offsets = np.stack([np.subtract.outer(side, side) for side in (y, x)], -1)
    read = {(*map(int, offset), int(found[at])) for at, offset in _cells(offsets)}
    assert sorted(entry for _, _, entry in read) == list(range(count))
    assert len({(down, right) for down, right, _ in read}) == count


def _cells(offsets: Any) -> Any:
    return ((at, offsets[at]) for at in np.ndindex(offsets.shape[:2]))


@pytest.mark.parametrize("kind", [Swin2D, BEiT, Decomposed2D], ids=lambda kind: kind.name)
def test_fewer_queries_read_the_rows_of_their_own_cells(twin: Any, kind: Any) -> None:
    # The first two rows and columns of three: the last rows of the square are other cells.
    cells = np.array([0, 1, 3, 4]) + (kind is BEiT)
    square = rows_read(twin, kind(3, 3))
    found = rows_read(twin, kind(3, 3), cells)
    passes(compare_exact(square[cells], found, what="entries"))
    assert (found != square[-4:]).any()


def test_entries_are_counted_in_whole_numbers() -> None:
    scheme, at = BEiT(2, 3), np.arange(7)
    assert (
        relpos_torch.schemes.beit.entries(scheme, torch.tensor(at), torch.tensor(at)).dtype
        == torch.int64
    )
    for dtype in ("int32", "int64"):
        positions = jax.ShapeDtypeStruct(at.shape, dtype)
        entries = jax.eval_shape(lambda i: relpos_jax.schemes.beit.entries(scheme, i, i), positions)
        assert entries.dtype == dtype


def test_a_window_that_shrinks_to_its_map_has_the_middle_of_the_table(twin: Any) -> None:
    # A window of 12 over a map of 6 x 6 is one of 6, with 121 offsets, and nothing is moved.
    large, small = Swin2D(12, 12), Swin2D(6, 6)
    table = draw_params(large, 1, 1)
    cut = resize_tables(table, large, small, "geometric")
    assert cut["bias_table"].shape == (1, 121)
    middle = table["bias_table"].reshape(23, 23)[6:17, 6:17]
    np.testing.assert_array_equal(cut["bias_table"].reshape(11, 11), middle)
    at = np.arange(6)[:, None] * 12 + np.arange(6)
    x = np.zeros((36, 1))
    inside = {"query_positions": at.reshape(-1), "key_positions": at.reshape(-1)}
    np.testing.assert_array_equal(
        twin.scores(large, {"bias_table": table["bias_table"][0]}, x, x, **inside),
        twin.scores(small, {"bias_table": cut["bias_table"][0]}, x, x),
    )


def test_coordinates_are_logarithms_of_what_the_network_was_trained_with() -> None:
    corner, middle, grown = 1.056641667147, 0.773976031629, 1.393776588238
    for scheme, first in (
        (SwinV2(8, 8), corner),
        (SwinV2(16, 16, pretrained_height=8, pretrained_width=8), grown),
    ):
        found = scheme.coordinates()
        # The first offset is that to the key farthest up and left: query minus key is positive.
        passes(compare(_to_digits(first, first, -first, -first), found[[0, -1]].reshape(-1)))
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
