"""numpy to torch and jax and back: the same bits, in memory of their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from parity_tests.weights.samples import random_bits
from relpos import WeightsError
from relpos.weights.framework_arrays import (
    array_from_jax,
    array_from_torch,
    jax_from_array,
    torch_from_array,
)
from relpos.weights.neutral import FLOAT_DTYPES, Array

every_dtype = pytest.mark.parametrize("dtype", FLOAT_DTYPES)


def aligned(array: Array) -> Array:
    """The same numbers where jax would be content to keep numpy's memory: at a multiple of 64."""
    room = np.empty(array.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@every_dtype
def test_torch_keeps_every_bit_and_shares_no_memory(dtype: str) -> None:
    array = random_bits((7, 5), dtype, 1)
    tensor = torch_from_array(array)
    assert tensor.dtype == getattr(torch, dtype)
    back = array_from_torch(tensor)
    assert (back.dtype, back.tobytes()) == (array.dtype, array.tobytes())
    tensor.zero_()
    assert back.tobytes() == array.tobytes() == random_bits((7, 5), dtype, 1).tobytes()


@every_dtype
def test_jax_keeps_every_bit_and_shares_no_memory(dtype: str) -> None:
    array = aligned(random_bits((37, 64), dtype, 2))
    ours = jax_from_array(array)
    assert ours.dtype.name == dtype
    back = array_from_jax(ours)
    expected = random_bits((37, 64), dtype, 2).tobytes()
    assert (back.dtype, back.tobytes()) == (array.dtype, expected)
    array[...] = 0
    assert np.asarray(ours).tobytes() == expected
    back[...] = 0
    assert np.asarray(ours).tobytes() == expected


@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
def test_strided_and_required_gradients_are_no_hindrance(order: tuple[int, int]) -> None:
    tensor = torch.arange(15.0).reshape(3, 5).requires_grad_()
    turned = array_from_torch(tensor.permute(order).to(torch.bfloat16))
    expected = np.arange(15.0).reshape(3, 5).transpose(order)
    np.testing.assert_array_equal(turned.astype("float64"), expected)


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(3, device="meta"), torch.eye(3).to_sparse()],
    ids=["without data", "sparse"],
)
def test_a_tensor_that_is_no_plain_array(tensor: torch.Tensor) -> None:
    with pytest.raises(WeightsError, match="dense tensor with data"):
        array_from_torch(tensor)


@pytest.mark.accelerator
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_an_accelerator_gives_back_every_bit() -> None:
    array = random_bits((7, 5), "bfloat16", 3)
    assert array_from_torch(torch_from_array(array).cuda()).tobytes() == array.tobytes()
