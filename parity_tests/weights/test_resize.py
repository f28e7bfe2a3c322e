"""Tables of one grid for another: against torch's interpolation, and what must stay as it is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import relpos_torch
from parity_tests.twins.twin import draw, passes
from relpos import BEiT, Decomposed2D, Swin2D, SwinV2
from relpos.errors import SettingError, ShapeError, WeightsError
from relpos.oracle import Estimate
from relpos.parity import compare
from relpos.weights import load_into, resize_tables

H, d = 3, 5
#: A weighted mean of 16 numbers, in whatever order, and with weights that are rounded themselves.
ROUNDING = 64 * 2.0**-53


def tables(scheme: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Random parameters."""
    return {p.name: draw(n, *p.shape) for n, p in enumerate(scheme.parameters(H, d))}


def near(expected: Any, got: Any) -> None:
    """Within the rounding of a mean over the table."""
    budget = np.full(expected.shape, ROUNDING * np.abs(expected).max())
    passes(compare(Estimate(expected, budget), got))


@pytest.mark.parametrize("new", [(2, 3), (5, 4), (4, 2), (3, 7)])
@pytest.mark.parametrize(("method", "theirs"), [("linear", "bilinear"), ("bicubic", "bicubic")])
def test_grids_are_stretched_as_torch_stretches_images(
    new: tuple[int, int], method: Any, theirs: str
) -> None:
    before, after = BEiT(4, 3), BEiT(*new)
    table = tables(before)["bias_table"]
    image = torch.tensor(table[:, :-3].reshape(1, H, 7, 5))
    size = 2 * new[0] - 1, 2 * new[1] - 1
    expected = torch.nn.functional.interpolate(image, size, mode=theirs).numpy().reshape(H, -1)
    got = resize_tables({"bias_table": table}, before, after, method)["bias_table"]
    assert got.shape == after.parameters(H, d)[0].shape
    near(expected, got[:, :-3])
    # What concerns the class token is carried over.
    np.testing.assert_array_equal(got[:, -3:], table[:, -3:])
    plain = {"bias_table": np.ascontiguousarray(table[:, :-3])}
    alike = resize_tables(plain, Swin2D(4, 3), Swin2D(*new), method)["bias_table"]
    np.testing.assert_array_equal(alike, got[:, :-3])


def test_rows_and_columns_are_resized_each_by_itself() -> None:
    before, after = Decomposed2D(4, 3), Decomposed2D(6, 3)
    given = tables(before)
    got = resize_tables(given, before, after, "linear")
    row = torch.tensor(given["row_table"].swapaxes(1, 2))
    near(
        torch.nn.functional.interpolate(row, 11, mode="linear").numpy().swapaxes(1, 2),
        got["row_table"],
    )
    np.testing.assert_array_equal(got["column_table"], given["column_table"])


@pytest.mark.parametrize("method", ["linear", "bicubic", "geometric"])
@pytest.mark.parametrize("scheme", [Swin2D(3, 4), BEiT(3, 4), Decomposed2D(3, 4)])
def test_the_same_size_is_the_same_table_bit_for_bit(scheme: Any, method: Any) -> None:
    given = {name: table.astype(np.float32) for name, table in tables(scheme).items()}
    given = {name: np.where(table > 1, -np.float32(0), table) for name, table in given.items()}
    for name, table in resize_tables(given, scheme, scheme, method).items():
        assert table.dtype == np.float32
        assert table.tobytes() == given[name].tobytes()


@pytest.mark.parametrize(("old", "new"), [((7, 7), (12, 12)), ((2, 2), (2, 3))])
def test_a_table_of_another_window_is_resized_on_request_and_never_loaded_as_it_is(
    old: tuple[int, int], new: tuple[int, int]
) -> None:
    for kind in (Swin2D, BEiT):
        before, after = kind(*old), kind(*new)
        given = tables(before)
        got = resize_tables(given, before, after, "bicubic")
        offsets = [(2 * height - 1, 2 * width - 1) for height, width in (old, new)]
        count = math.prod(offsets[0])
        image = torch.tensor(given["bias_table"][:, :count].reshape(1, H, *offsets[0]))
        stretched = torch.nn.functional.interpolate(image, offsets[1], mode="bicubic")
        near(stretched.numpy().reshape(H, -1), got["bias_table"][:, : math.prod(offsets[1])])
        beside = 3 if kind is BEiT else 0
        assert got["bias_table"].shape == (H, math.prod(offsets[1]) + beside)
        np.testing.assert_array_equal(
            got["bias_table"][:, math.prod(offsets[1]) :], given["bias_table"][:, count:]
        )
        layers = [relpos_torch.RelativeAttention(H * d, H, scheme) for scheme in (before, after)]
        with pytest.raises(WeightsError, match=f"different: scheme {kind.name}"):
            load_into(layers[1], layers[0])
        with pytest.raises(RuntimeError, match="size mismatch for bias_table"):
            layers[1].load_state_dict(layers[0].state_dict())


def test_geometric_places_keep_near_offsets_and_both_ends() -> None:
    # 1 + 2 + 4 = 7: the ratio from 4 cells to 8 is 2, and old offsets lie at 0, 1, 3 and 7.
    given = {"bias_table": np.array([[-30.0, -20.0, -10.0, 0.0, 10.0, 20.0, 30.0]])}
    got = resize_tables(given, Swin2D(1, 4), Swin2D(1, 8), "geometric")["bias_table"]
    right = [0.0, 10.0, 15.0, 20.0, 22.5, 25.0, 27.5, 30.0]
    near(np.array([[*(-x for x in right[:0:-1]), *right]]), got)
    back = resize_tables(given, Swin2D(1, 4), Swin2D(1, 2), "geometric")["bias_table"]
    np.testing.assert_array_equal(back, [[-10.0, 0.0, 10.0]])


@pytest.mark.parametrize(
    ("old", "new", "method"),
    [
        (Swin2D(2, 2), BEiT(2, 3), "linear"),
        (Decomposed2D(2, 2), Decomposed2D(2, 3, scaled=True), "linear"),
        (SwinV2(2, 2), SwinV2(2, 3), "linear"),
        (Swin2D(2, 2), Swin2D(2, 3), "nearest"),
    ],
)
def test_what_cannot_be_resized_is_refused(old: Any, new: Any, method: Any) -> None:
    with pytest.raises(SettingError, match=r"pretrained_height|one of linear"):
        resize_tables(tables(old), old, new, method)


def test_a_table_of_another_window_is_refused() -> None:
    with pytest.raises(ShapeError, match="exactly the scheme's parameters"):
        resize_tables(tables(Swin2D(3, 3)), Swin2D(2, 2), Swin2D(2, 3), "linear")
