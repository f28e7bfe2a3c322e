"""numpy arrays <-> torch tensors and jax arrays, bit for bit and never sharing memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relpos.errors import WeightsError
from relpos.weights.neutral import FLOAT_DTYPES, Array
from relpos.weights.optional import need

if TYPE_CHECKING:
    import jax
    import torch

__all__ = ["array_from_jax", "array_from_torch", "jax_from_array", "torch_from_array"]

_BFLOAT16 = FLOAT_DTYPES["bfloat16"]


def array_from_torch(tensor: torch.Tensor) -> Array:
    """A numpy copy of a tensor on any device."""
    torch = need("torch", "torch")
    if tensor.is_meta or tensor.layout != torch.strided or tensor.is_quantized:
        raise WeightsError(
            "a tensor of weights holds plain numbers",
            got=f"{tensor.dtype}, {tensor.layout}, device {tensor.device}",
            expected="a dense tensor with data",
        )
    plain = tensor.detach().cpu().contiguous()
    if plain.dtype == torch.bfloat16:
        # numpy has no bfloat16 of its own, and tensor.numpy() refuses it.
        return plain.view(torch.int16).numpy().view(_BFLOAT16).copy()
    return np.array(plain.resolve_conj().resolve_neg().numpy(), copy=True)


def torch_from_array(array: Array) -> torch.Tensor:
    """A tensor copy of a numpy array, on the CPU."""
    torch = need("torch", "torch")
    own = np.array(array, order="C", copy=True)
    if own.dtype == _BFLOAT16:
        tensor = torch.from_numpy(own.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(own)
    return tensor  # type: ignore[no-any-return]


def array_from_jax(array: Any) -> Array:
    """A numpy copy of a jax array; a sharded one is gathered."""
    return np.array(array, order="C", copy=True)


def jax_from_array(array: Array) -> jax.Array:
    """A jax copy of a numpy array, on the default device.

    Raises:
        WeightsError: The array is float64 and jax is not set to hold it: it would be rounded to
            float32 without a word.
    """
    jax = need("jax", "jax")
    held = jax.dtypes.canonicalize_dtype(array.dtype)
    if held != array.dtype:
        raise WeightsError(
            "weights keep their dtype",
            got=f"{array.dtype}, which jax would make {held}",
            expected='jax.config.update("jax_enable_x64", True), or weights.astype("float32")',
        )
    return jax.numpy.array(array, copy=True)  # type: ignore[no-any-return]
