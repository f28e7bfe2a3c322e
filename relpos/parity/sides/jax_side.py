"""JAX and Flax as a side: eager, `jit`, `vmap` and `jit` of `vmap`; the kernel `blockwise`, with
`jit`; layers of nnx and of linen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import flax
import jax
import numpy as np
from flax import nnx, traverse_util
from jax import Array
from numpy.typing import NDArray

import relpos_jax
import relpos_jax.linen
import relpos_jax.nnx
from relpos.checks import Sizes
from relpos.errors import RelposError
from relpos.parity.cases import Case, LayerInputs, numpy_dtype
from relpos.parity.sides.base import BLOCK_ROWS, Answer, gradient_of
from relpos_jax.kernels import masks
from relpos_jax.kernels.blocks import block_rows
from relpos_jax.kernels.positions import Positions

__all__ = ["JaxSide"]


class JaxSide:
    """JAX on one device.

    Args:
        device: A platform of jax such as `cpu`, `cuda` or `tpu`, with `:N` for its device number N;
            `auto` is the first of jax's own choice.
    """

    def __init__(self, device: str = "auto") -> None:
        if device == "auto":
            device = jax.devices()[0].platform
        platform, _, number = device.partition(":")
        try:
            self.device = jax.devices(platform)[int(number or 0)]
        except (RuntimeError, IndexError) as error:
            raise RelposError(
                "jax runs on a device that it has",
                got=device,
                expected=", ".join(sorted({d.platform for d in jax.devices()} | {"cpu"})),
            ) from error

    def attention(self, case: Case, dtype: str, mode: str) -> Answer:
        """See `Side`."""
        inputs = case.inputs(dtype)

        def call(
            tokens: dict[str, Array],
            params: dict[str, Array],
            mask: Array | None,
            query_positions: Array | None,
            key_positions: Array | None,
        ) -> Array:
            q, k, v = (tokens[name] for name in "qkv")
            return relpos_jax.attention(
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

        function: Callable[..., Array] = call
        if mode in ("vmap", "jit-vmap"):
            # Only what has a batch axis of its own is mapped; a mask without one is shared.
            mask_axis = 0 if inputs.mask is not None and len(inputs.mask) > 1 else None
            position_axes = [
                0 if positions is not None and positions.ndim == 2 else None
                for positions in (inputs.query_positions, inputs.key_positions)
            ]

            def one_row(tokens: dict[str, Array], params: Any, mask: Any, *positions: Any) -> Array:
                mask = mask[None] if mask_axis == 0 else mask
                one = {name: array[None] for name, array in tokens.items()}
                return call(one, params, mask, *positions)[0]

            function = jax.vmap(one_row, in_axes=(0, None, mask_axis, *position_axes))
        # Blocks of a few rows, that even a short case has several.
        with self._settled(dtype), block_rows(BLOCK_ROWS):
            tokens = {n: self._array(a.swapaxes(1, 2)) for n, a in inputs.tokens.items()}
            params = {name: self._array(array) for name, array in inputs.params.items()}
            extras = tuple(
                None if array is None else self._array(array)
                for array in (inputs.mask, inputs.query_positions, inputs.key_positions)
            )
            cotangent = self._array(inputs.cotangent.swapaxes(1, 2))
            output, (by_token, by_param) = _with_gradients(
                function, mode, (tokens, params), extras, cotangent
            )
            answer = {"output": _numpy(output).swapaxes(1, 2)}
            for name, gradient in by_token.items():
                answer[gradient_of(name)] = _numpy(gradient).swapaxes(1, 2)
            return answer | {gradient_of(name): _numpy(g) for name, g in by_param.items()}

    def relative_scores(self, case: Case, dtype: str, mode: str) -> Answer:
        """See `Side`."""
        inputs = case.head_inputs(dtype)

        def one_head(
            tokens: dict[str, Array],
            params: dict[str, Array],
            query_positions: Array | None,
            key_positions: Array | None,
        ) -> Array:
            return relpos_jax.relative_scores(
                tokens["q"],
                tokens["k"],
                case.scheme,
                params,
                query_positions=query_positions,
                key_positions=key_positions,
                query_features=tokens.get("query_features"),
                key_features=tokens.get("key_features"),
                scale=case.scale,
            )

        def every_head(
            tokens: dict[str, Array], params: dict[str, Array], *positions: Any
        ) -> Array:
            if "vmap" in mode:
                return jax.vmap(one_head, in_axes=(0, 0, None, None))(tokens, params, *positions)
            heads = [
                one_head(
                    {name: array[h] for name, array in tokens.items()},
                    {name: array[h] for name, array in params.items()},
                    *positions,
                )
                for h in range(case.H)
            ]
            return jax.numpy.stack(heads)

        with self._settled(dtype):
            tokens = {name: self._array(array) for name, array in inputs.tokens.items()}
            params = {name: self._array(array) for name, array in inputs.params.items()}
            positions = tuple(
                None if array is None else self._array(array)
                for array in (inputs.query_positions, inputs.key_positions)
            )
            output, (by_token, by_param) = _with_gradients(
                every_head, mode, (tokens, params), positions, self._array(inputs.cotangent)
            )
            answer = {"output": _numpy(output)}
            for name, gradient in {**by_token, **by_param}.items():
                answer[gradient_of(name)] = _numpy(gradient)
            return answer

    def layer(self, case: Case, dtype: str, kind: str) -> Answer:
        """See `Side`."""
        inputs = case.layer_inputs(dtype)
        with self._settled(dtype):
            apply, weights = self._layer(inputs, dtype, kind)
            sources = {"x": self._array(inputs.x)}
            if inputs.key_value is not None:
                sources["key_value"] = self._array(inputs.key_value)
            extras = tuple(
                None if array is None else self._array(array)
                for array in (inputs.mask, inputs.query_positions, inputs.key_positions)
            )

            def call(weights: Any, sources: dict[str, Array], *extras: Array | None) -> Array:
                mask, positions, key_positions = extras
                output: Array = apply(
                    weights,
                    sources["x"],
                    sources.get("key_value"),
                    mask=mask,
                    positions=positions,
                    key_positions=key_positions,
                )
                return output

            output, (by_weight, by_source) = _with_gradients(
                call, "jit", (weights, sources), extras, self._array(inputs.cotangent)
            )
            answer = {"output": _numpy(output)}
            for name, gradient in by_source.items():
                answer[gradient_of(name)] = _numpy(gradient)
            for name, gradient in _flat(by_weight).items():
                answer[gradient_of(name)] = _numpy(gradient)
            return answer

    def decode(self, case: Case, dtype: str, kind: str, chunks: tuple[int, ...]) -> Answer:
        """See `Side`."""
        inputs = case.layer_inputs(dtype)
        with self._settled(dtype):
            apply, weights = self._layer(inputs, dtype, kind)
            cache = self._module(inputs, dtype, kind).init_cache(case.B, case.Lq)
            step = jax.jit(lambda weights, x, cache: apply(weights, x, cache=cache))
            outputs, start = [], 0
            for length in chunks:
                chunk = self._array(inputs.x[:, start : start + length])
                output, cache = step(weights, chunk, cache)
                outputs.append(_numpy(output))
                start += length
            return {"output": np.concatenate(outputs, 1)}

    def allowed(self, case: Case) -> NDArray[Any]:
        """See `Side`."""
        inputs = case.inputs("float32")
        sizes = Sizes(case.B, case.H, case.G, case.Lq, case.Lk, case.d)
        with self._settled("float32"):
            mask, at, others = (
                None if array is None else self._array(array)
                for array in (inputs.mask, inputs.query_positions, inputs.key_positions)
            )
            positions = Positions.of(at, others, sizes, case.causal, case.scheme.position_axes)
            allowed = masks.attention_mask(mask, positions, sizes)
        shape = (case.B, case.H, case.Lq, case.Lk)
        if allowed is None:
            return np.ones(shape, bool)
        return np.broadcast_to(np.asarray(allowed), shape)

    def environment(self) -> dict[str, Any]:
        """See `Side`."""
        with self._settled("float64"):
            return {
                "version": jax.__version__,
                "flax": flax.__version__,
                "device": f"{self.device.platform}:{self.device.id}",
                "device_name": self.device.device_kind,
                "default_matmul_precision": str(jax.config.values["jax_default_matmul_precision"]),
                "x64": "for float64 alone",
            }

    @contextlib.contextmanager
    def _settled(self, dtype: str) -> Iterator[None]:
        """The device, full matrix products, and 64 bits only where the dtype has them."""
        with (
            jax.default_device(self.device),
            jax.default_matmul_precision("highest"),
            jax.enable_x64(dtype == "float64"),
        ):
            yield

    def _array(self, array: NDArray[Any]) -> Array:
        put: Array = jax.device_put(np.ascontiguousarray(array), self.device)
        return put

    def _module(self, inputs: LayerInputs, dtype: str, kind: str) -> Any:
        dtypes: dict[str, Any] = dict.fromkeys(("dtype", "param_dtype"), numpy_dtype(dtype))
        if kind == "linen":
            return relpos_jax.linen.RelativeAttention.from_settings(inputs.settings, **dtypes)
        # Shapes alone: random numbers that weights replace at once would be compiled for seconds.
        return nnx.eval_shape(
            lambda: relpos_jax.nnx.RelativeAttention.from_settings(
                inputs.settings, **dtypes, rngs=nnx.Rngs(0)
            )
        )

    def _layer(self, inputs: LayerInputs, dtype: str, kind: str) -> tuple[Callable[..., Any], Any]:
        """A function of (weights, inputs), and the weights as a tree of arrays."""
        from relpos import weights

        neutral = weights.Weights({"": inputs.settings}, inputs.tensors)
        module = self._module(inputs, dtype, kind)
        if kind == "linen":

            def apply_linen(tree: Any, *args: Any, **kw: Any) -> Any:
                return module.apply({"params": tree}, *args, **kw)

            return apply_linen, weights.to_flax(neutral)
        weights.load_into(module, neutral)
        state: Any = nnx.split(module, nnx.Param, ...)
        graph, parameters, rest = state

        def apply(tree: Any, *args: Any, **kw: Any) -> Any:
            return nnx.merge(graph, tree, rest)(*args, **kw)

        return apply, parameters


def _with_gradients(
    function: Callable[..., Array],
    mode: str,
    inputs: tuple[Any, ...],
    extras: tuple[Any, ...],
    cotangent: Array,
) -> tuple[Array, tuple[Any, ...]]:
    """function(*inputs, *extras) and the gradients of <cotangent, output> by every input."""

    def run(
        inputs: tuple[Any, ...], extras: tuple[Any, ...], cotangent: Array
    ) -> tuple[Array, tuple[Any, ...]]:
        output, pull = jax.vjp(lambda *inputs: function(*inputs, *extras), *inputs)
        gradients: tuple[Any, ...] = pull(cotangent.astype(output.dtype))
        return output, gradients

    result: tuple[Array, tuple[Any, ...]]
    result = (jax.jit(run) if mode in ("jit", "jit-vmap", "blockwise") else run)(
        inputs, extras, cotangent
    )
    return result


def _numpy(array: Array) -> NDArray[Any]:
    return np.asarray(array)


def _flat(tree: Any) -> dict[str, Array]:
    """Leaves of nested dicts or of an nnx state by their dotted path."""
    if isinstance(tree, nnx.State):
        tree = nnx.to_pure_dict(tree)
    flat: dict[tuple[str, ...], Array] = traverse_util.flatten_dict(tree)  # type: ignore[no-untyped-call]
    return {".".join(path): leaf for path, leaf in flat.items()}
