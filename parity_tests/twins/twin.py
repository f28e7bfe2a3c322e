"""Both twins behind one face: numpy in, numpy out, axes as torch has them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import torch
from flax import nnx
from numpy.typing import NDArray

import relpos_jax
import relpos_jax.nnx
import relpos_torch
from relpos import AttentionSettings, Scheme
from relpos.parity import Comparison, Verdict
from relpos.parity.sides.torch_side import to_numpy, to_tensor
from relpos.weights import Weights, load_into

Arrays = dict[str, NDArray[Any]]


class TorchTwin:
    """relpos_torch."""

    name = "torch"

    def array(self, array: Any) -> Any:
        """Numpy to the framework's array; None and numbers stay."""
        return to_tensor(array) if isinstance(array, np.ndarray) else array

    def numpy(self, array: Any) -> NDArray[Any]:
        """The framework's array to numpy."""
        return to_numpy(array.detach())

    def attention(
        self, scheme: Scheme, params: Mapping[str, Any], *qkv: NDArray[Any], **options: Any
    ) -> NDArray[Any]:
        """`attention` with axes [B, H, L, d]."""
        options = {name: self.array(value) for name, value in options.items()}
        tensors = {name: self.array(value) for name, value in params.items()}
        q, k, v = (self.array(a) for a in qkv)
        return self.numpy(relpos_torch.attention(q, k, v, scheme, tensors, **options))

    def scores(
        self, scheme: Scheme, params: Mapping[str, Any], *qk: NDArray[Any], **options: Any
    ) -> NDArray[Any]:
        """`relative_scores` of one head."""
        options = {name: self.array(value) for name, value in options.items()}
        tables = {name: self.array(np.asarray(value)) for name, value in params.items()}
        q, k = (self.array(a) for a in qk)
        return self.numpy(relpos_torch.relative_scores(q, k, scheme, tables, **options))

    def gradients(
        self,
        scheme: Scheme,
        params: Mapping[str, Any],
        *qkv: NDArray[Any],
        cotangent: NDArray[Any],
        **options: Any,
    ) -> Arrays:
        """Gradients of sum(cotangent * output)."""
        options = {name: self.array(value) for name, value in options.items()}
        inputs = dict(zip("qkv", map(self.array, qkv), strict=True))
        tables = {name: self.array(value) for name, value in params.items()}
        leaves = {name: t.requires_grad_() for name, t in {**inputs, **tables}.items()}
        out = relpos_torch.attention(*inputs.values(), scheme, tables, **options)
        out.backward(self.array(cotangent))
        return {name: self.numpy(leaf.grad) for name, leaf in leaves.items()}

    def layer(
        self, settings: AttentionSettings, tensors: Arrays, *, eager: bool = False
    ) -> NumpyLayer:
        """A layer with these weights; its calls take and give numpy, caches apart."""
        dtype = getattr(torch, next(iter(tensors.values())).dtype.name)
        layer = relpos_torch.RelativeAttention.from_settings(settings, dtype=dtype)
        return NumpyLayer(self, load_into(layer, Weights({"": settings}, tensors)))


class JaxTwin:
    """relpos_jax."""

    name = "jax"

    def array(self, array: Any) -> Any:
        """Numpy to the framework's array; None and numbers stay."""
        return jnp.asarray(array) if isinstance(array, np.ndarray) else array

    def numpy(self, array: Any) -> NDArray[Any]:
        """The framework's array to numpy."""
        return np.asarray(array)

    def attention(
        self, scheme: Scheme, params: Mapping[str, Any], *qkv: NDArray[Any], **options: Any
    ) -> NDArray[Any]:
        """`attention` with axes [B, H, L, d]."""
        q, k, v = (self.array(a.swapaxes(1, 2)) for a in qkv)
        tables = {name: self.array(value) for name, value in params.items()}
        arrays = {name: self.array(a) for name, a in options.items() if isinstance(a, np.ndarray)}
        static = tuple((name, value) for name, value in options.items() if name not in arrays)
        call = _attention(scheme, static)
        # Positions are checked against a table that may not clip where their values are seen.
        compiled = call if scheme.limits else jax.jit(call)
        return self.numpy(compiled(q, k, v, tables, arrays)).swapaxes(1, 2)

    def scores(
        self, scheme: Scheme, params: Mapping[str, Any], *qk: NDArray[Any], **options: Any
    ) -> NDArray[Any]:
        """`relative_scores` of one head, compiled: as one program that takes the least time."""
        arrays = {name: self.array(a) for name, a in options.items() if isinstance(a, np.ndarray)}
        static = {name: value for name, value in options.items() if name not in arrays}
        tables = {name: self.array(np.asarray(value)) for name, value in params.items()}

        @jax.jit
        def call(q: Any, k: Any, tables: Any, arrays: Any) -> Any:
            return relpos_jax.relative_scores(q, k, scheme, tables, **static, **arrays)

        return self.numpy(call(*map(self.array, qk), tables, arrays))

    def gradients(
        self,
        scheme: Scheme,
        params: Mapping[str, Any],
        *qkv: NDArray[Any],
        cotangent: NDArray[Any],
        **options: Any,
    ) -> Arrays:
        """Gradients of sum(cotangent * output)."""
        options = {name: self.array(value) for name, value in options.items()}
        arrays = {name: self.array(value) for name, value in params.items()}
        inputs = [self.array(a.swapaxes(1, 2)) for a in qkv]

        def call(q: Any, k: Any, v: Any, params: Any) -> Any:
            return relpos_jax.attention(q, k, v, scheme, params, **options)

        @jax.jit
        def gradients(cotangent: Any) -> Any:
            return jax.vjp(call, *inputs, arrays)[1](cotangent)

        *by_input, by_param = gradients(self.array(cotangent.swapaxes(1, 2)))
        named = {n: self.numpy(g).swapaxes(1, 2) for n, g in zip("qkv", by_input, strict=True)}
        return named | {name: self.numpy(gradient) for name, gradient in by_param.items()}

    def layer(
        self, settings: AttentionSettings, tensors: Arrays, *, eager: bool = False
    ) -> NumpyLayer:
        """A layer with these weights; its calls take and give numpy, caches apart.

        Compiled, unless `eager`: only there can the values of positions and lengths be checked.
        """
        dtype = next(iter(tensors.values())).dtype
        layer = nnx.eval_shape(
            lambda: relpos_jax.nnx.RelativeAttention.from_settings(
                settings, dtype=dtype, param_dtype=dtype, rngs=nnx.Rngs(0)
            )
        )
        layer.eval()
        load_into(layer, Weights({"": settings}, tensors))
        if eager:
            return NumpyLayer(self, layer)
        graph, state = nnx.split(layer)

        @jax.jit
        def call(state: Any, inputs: Any, options: Any) -> Any:
            return nnx.merge(graph, state)(*inputs, **options)

        return NumpyLayer(self, layer, lambda *inputs, **options: call(state, inputs, options))


@functools.cache
def _attention(scheme: Scheme, static: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    """One function per scheme and options, so that `jax.jit` knows it again."""

    def call(q: Any, k: Any, v: Any, params: Any, arrays: Any) -> Any:
        return relpos_jax.attention(q, k, v, scheme, params, **dict(static), **arrays)

    return call


class NumpyLayer:
    """A layer whose calls take and give numpy arrays.

    Args:
        twin: The twin it belongs to.
        layer: The layer itself.
        call: Calls it with the framework's arrays; `layer` itself if None.
    """

    def __init__(self, twin: Any, layer: Any, call: Callable[..., Any] | None = None) -> None:
        self.twin, self.layer, self.call = twin, layer, call or layer

    def __call__(self, *inputs: NDArray[Any], **options: Any) -> Any:
        options = {name: self.twin.array(value) for name, value in options.items()}
        out = self.call(*map(self.twin.array, inputs), **options)
        if isinstance(out, tuple):
            return self.twin.numpy(out[0]), out[1]
        return self.twin.numpy(out)

    def init_cache(self, batch: int, capacity: int) -> Any:
        """The layer's empty cache."""
        return self.layer.init_cache(batch, capacity)


def draw(seed: int, *shape: int, dtype: Any = np.float64) -> NDArray[Any]:
    """Normal numbers, the same on every machine."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def draw_params(scheme: Scheme, H: int, d: int, dtype: Any = np.float64) -> Arrays:
    """A scheme's parameters."""
    table = scheme.parameters(H, d)
    return {p.name: draw(n + 101, *p.shape, dtype=dtype) for n, p in enumerate(table)}


def draw_weights(settings: AttentionSettings, dtype: Any = np.float64) -> Arrays:
    """A layer's parameters."""
    return {
        p.name: draw(n + 211, *p.shape, dtype=dtype) * np.asarray(0.5, dtype)
        for n, p in enumerate(settings.parameters())
    }


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Without the run-time check of annotations, which would speak before the library does."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def passes(comparison: Comparison) -> None:
    """Assert that a comparison passed; the failure says where and by how much."""
    assert comparison.verdict is Verdict.PASS, str(comparison)


def fails(comparison: Comparison) -> None:
    """Assert that a comparison failed."""
    assert comparison.verdict is Verdict.FAIL, str(comparison)
