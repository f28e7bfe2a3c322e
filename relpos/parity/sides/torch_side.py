"""PyTorch as a side: eager, `torch.compile`, `torch.func.vmap` and the kernel `blockwise`."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import relpos_torch
from relpos.checks import Sizes
from relpos.errors import RelposError
from relpos.parity.cases import Case, numpy_dtype
from relpos.parity.sides.base import BLOCK_ROWS, Answer, CannotRunError, gradient_of
from relpos_torch.kernels import masks
from relpos_torch.kernels.positions import Positions
from relpos_torch.kernels.skewed import block_rows

__all__ = ["TorchSide", "to_numpy", "to_tensor"]


class TorchSide:
    """PyTorch on one device.

    Args:
        device: `cpu`, `cuda`, `cuda:N`, or `auto`: an accelerator if there is one.
    """

    def __init__(self, device: str = "auto") -> None:
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        kind = device.partition(":")[0]
        if kind not in ("cpu", "cuda") or (kind == "cuda" and not torch.cuda.is_available()):
            raise RelposError(
                "torch runs on a device that it has",
                got=device,
                expected="cpu" + (", cuda" if torch.cuda.is_available() else ""),
            )
        self.device = torch.device(device)

    def attention(self, case: Case, dtype: str, mode: str) -> Answer:
        """See `Side`."""
        inputs = case.inputs(dtype)
        tokens = {name: self._leaf(array) for name, array in inputs.tokens.items()}
        params = {name: self._leaf(array) for name, array in inputs.params.items()}
        extras = [
            None if array is None else to_tensor(array, self.device)
            for array in (inputs.mask, inputs.query_positions, inputs.key_positions)
        ]

        def call(
            tokens: dict[str, Tensor],
            params: dict[str, Tensor],
            mask: Tensor | None,
            query_positions: Tensor | None,
            key_positions: Tensor | None,
        ) -> Tensor:
            q, k, v = (tokens[name] for name in "qkv")
            return relpos_torch.attention(
                q,
                k,
                v,
                case.scheme,
                params,
                mask=mask,
                causal=case.causal,
                query_positions=query_positions,
                key_positions=key_positions,
                query_features=tokens.get("query_features"),
                key_features=tokens.get("key_features"),
                scale=case.scale,
                implementation="blockwise" if mode == "blockwise" else "auto",
            )

        if mode == "vmap":
            mask, *positions = extras
            # Only what has a batch axis of its own is mapped; a mask without one is shared.
            mask_axis = 0 if mask is not None and len(mask) > 1 else None
            axes = [0 if at is not None and at.ndim == 2 else None for at in positions]

            def one_row(
                tokens: dict[str, Tensor], params: dict[str, Tensor], mask: Any, *others: Any
            ) -> Tensor:
                mask = mask[None] if mask_axis == 0 else mask
                return call({name: t[None] for name, t in tokens.items()}, params, mask, *others)[0]

            function = torch.func.vmap(one_row, in_dims=(0, None, mask_axis, *axes))
        else:
            function = self._in_mode(call, mode)
        # Blocks of a few rows, that even a short case has several.
        with _exact_products(), block_rows(BLOCK_ROWS):
            output = function(tokens, params, *extras)
            return self._answer(output, {**tokens, **params}, inputs.cotangent)

    def relative_scores(self, case: Case, dtype: str, mode: str) -> Answer:
        """See `Side`."""
        inputs = case.head_inputs(dtype)
        tokens = {name: self._leaf(array) for name, array in inputs.tokens.items()}
        params = {name: self._leaf(array) for name, array in inputs.params.items()}
        positions = {
            name: None if array is None else to_tensor(array, self.device)
            for name, array in (
                ("query_positions", inputs.query_positions),
                ("key_positions", inputs.key_positions),
            )
        }

        def one_head(tokens: dict[str, Tensor], params: dict[str, Tensor]) -> Tensor:
            features = {name: t for name, t in tokens.items() if name.endswith("_features")}
            return relpos_torch.relative_scores(
                tokens["q"],
                tokens["k"],
                case.scheme,
                params,
                **positions,
                **features,
                scale=case.scale,
            )

        with _exact_products():
            if mode == "vmap":
                output = torch.func.vmap(one_head)(tokens, params)
            else:
                function = self._in_mode(one_head, mode)
                output = torch.stack(
                    [
                        function(*({n: t[h] for n, t in of.items()} for of in (tokens, params)))
                        for h in range(case.H)
                    ]
                )
            return self._answer(output, {**tokens, **params}, inputs.cotangent)

    def layer(self, case: Case, dtype: str, kind: str) -> Answer:
        """See `Side`."""
        inputs = case.layer_inputs(dtype)
        layer = self._layer(case, dtype)
        x = self._leaf(inputs.x)
        sources = {"x": x}
        if inputs.key_value is not None:
            sources["key_value"] = self._leaf(inputs.key_value)
        extras = {
            name: None if array is None else to_tensor(array, self.device)
            for name, array in (
                ("mask", inputs.mask),
                ("positions", inputs.query_positions),
                ("key_positions", inputs.key_positions),
            )
        }
        with _exact_products():
            output = layer(x, sources.get("key_value"), **extras)
            weights = dict(layer.named_parameters())
            answer = self._answer(output, {**sources, **weights}, inputs.cotangent)
        for parameter in inputs.settings.parameters():
            # To the neutral names and shapes: a linear layer of torch holds the transpose.
            name = parameter.name.replace(".kernel", ".weight")
            gradient = answer.pop(gradient_of(name))
            neutral = gradient.T if name.endswith(".weight") else gradient
            answer[gradient_of(parameter.name)] = neutral.reshape(parameter.shape)
        return answer

    def decode(self, case: Case, dtype: str, kind: str, chunks: tuple[int, ...]) -> Answer:
        """See `Side`."""
        layer = self._layer(case, dtype)
        x = to_tensor(case.layer_inputs(dtype).x, self.device)
        cache = layer.init_cache(case.B, case.Lq)
        outputs = []
        with _exact_products(), torch.no_grad():
            for chunk in torch.split(x, list(chunks), dim=1):
                output, cache = layer(chunk, cache=cache)
                outputs.append(output)
        return {"output": to_numpy(torch.cat(outputs, 1))}

    def allowed(self, case: Case) -> NDArray[Any]:
        """See `Side`."""
        inputs = case.inputs("float32")
        sizes = Sizes(case.B, case.H, case.G, case.Lq, case.Lk, case.d)
        mask, at, others = (
            None if array is None else to_tensor(array, self.device)
            for array in (inputs.mask, inputs.query_positions, inputs.key_positions)
        )
        positions = Positions.of(at, others, sizes, case.causal, case.scheme.position_axes)
        allowed = masks.attention_mask(mask, positions, sizes, self.device)
        shape = (case.B, case.H, case.Lq, case.Lk)
        if allowed is None:
            return np.ones(shape, bool)
        return np.broadcast_to(to_numpy(allowed), shape)

    def environment(self) -> dict[str, Any]:
        """See `Side`."""
        with _exact_products():
            found: dict[str, Any] = {
                "version": torch.__version__,
                "device": str(self.device),
                "threads": torch.get_num_threads(),
                "float32_matmul_precision": torch.get_float32_matmul_precision(),
                "cuda.matmul.allow_tf32": torch.backends.cuda.matmul.allow_tf32,
            }
        if self.device.type == "cuda":
            found["device_name"] = torch.cuda.get_device_name(self.device)
        return found

    def _leaf(self, array: NDArray[Any]) -> Tensor:
        return to_tensor(array, self.device).requires_grad_()

    def _layer(self, case: Case, dtype: str) -> relpos_torch.RelativeAttention:
        from relpos import weights

        inputs = case.layer_inputs(dtype)
        layer = relpos_torch.RelativeAttention.from_settings(
            inputs.settings, device=self.device, dtype=getattr(torch, dtype)
        )
        weights.load_into(layer, weights.Weights({"": inputs.settings}, inputs.tensors))
        return layer

    def _in_mode(self, function: Callable[..., Tensor], mode: str) -> Callable[..., Tensor]:
        if mode in ("eager", "blockwise"):
            return function
        compiler = os.environ.get("CXX", "")
        if not any(shutil.which(name) for name in (compiler, "g++", "clang++", "cl") if name):
            raise CannotRunError("torch.compile needs a C++ compiler, and none was found")
        # Traces of other cases would count against the limit of traces per function.
        torch.compiler.reset()
        return torch.compile(function, fullgraph=True)

    def _answer(
        self, output: Tensor, leaves: Mapping[str, Tensor], cotangent: NDArray[Any]
    ) -> Answer:
        seed = to_tensor(cotangent, self.device).to(output.dtype)
        gradients: tuple[Tensor | None, ...] = (None,) * len(leaves)
        if output.requires_grad:
            inputs = list(leaves.values())
            gradients = torch.autograd.grad(output, inputs, seed, allow_unused=True)
        answer = {"output": to_numpy(output.detach())}
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
            # No path to the output means a gradient of zero, and is judged as one.
            found = torch.zeros_like(leaf) if gradient is None else gradient
            answer[gradient_of(name)] = to_numpy(found.detach())
        return answer


def to_tensor(array: NDArray[Any], device: torch.device | None = None) -> Tensor:
    """A copy of a numpy array on a device, bfloat16 included."""
    array = np.asarray(array, order="C")
    if array.dtype == numpy_dtype("bfloat16"):
        return torch.tensor(array.view(np.int16), device=device).view(torch.bfloat16)
    return torch.tensor(array, device=device)


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    """A tensor as numpy, bfloat16 included."""
    tensor = tensor.cpu().contiguous()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(numpy_dtype("bfloat16"))
    return tensor.numpy()


@contextlib.contextmanager
def _exact_products() -> Iterator[None]:
    """float32 products in float32: no TF32 on accelerators."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
