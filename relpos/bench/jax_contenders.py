"""JAX: plain attention, our schemes, and what people write instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import relpos_jax
from relpos.bench.contender import Calls, Contender, Size
from relpos.bench.result import PLAIN
from relpos.bench.works import WORKS, Work
from relpos.distance import t5_bucket

__all__ = ["contenders", "matrix_product"]


def contenders(kernels: Sequence[str]) -> list[Contender]:
    """Everyone, plain attention first.

    Args:
        kernels: Kernels of ours that are measured beside the one that `auto` takes.
    """
    return [
        Contender(PLAIN["jax", "function"], "jax", "function", "no positions", _plain),
        *(_ours(work, kernel) for work in WORKS for kernel in ("auto", *kernels)),
        Contender(
            "q E^T and gather in JAX", "jax", "function", "Shaw, every distance",
            _function(_gathered, lambda size: ((1, 2 * size.L - 1, size.d),)),
            products=(3, 11), longest=4096,
        ),
        Contender(
            "dot_product_attention with the bias written out", "jax", "function", "T5",
            _function(_materialised_t5, lambda size: ((size.H, 32),)), longest=8192, quick=False,
        ),
    ]  # fmt: skip


def matrix_product(size: Size) -> tuple[Callable[[], None], float]:
    """A large matrix product and its operations, to measure the machine's rate with."""
    n = 2048
    a, b = (jax.device_put(_numbers(size, n, n), _device(size)) for _ in range(2))
    product = jax.jit(jnp.matmul)
    return lambda: product(a, b).block_until_ready(), 2.0 * n**3


def _gathered(q: Any, k: Any, v: Any, table: Any) -> jax.Array:
    """q E^T for every row of the table, then the rows that each pair reads."""
    L, d = q.shape[1], q.shape[3]
    row = jnp.arange(L)[None, :] - jnp.arange(L)[:, None] + L - 1
    by_row = jnp.einsum(
        "bihe,hne->bhin", q, jnp.broadcast_to(table, (q.shape[2], *table.shape[1:]))
    )
    chosen = jnp.take_along_axis(by_row, row[None, None], axis=-1)
    scores = (jnp.einsum("bihe,bjhe->bhij", q, k) + chosen) * d**-0.5
    return jnp.einsum("bhij,bjhe->bihe", jax.nn.softmax(scores), v)


def _materialised_t5(q: Any, k: Any, v: Any, table: Any) -> jax.Array:
    """The bias [H, L, L] made by indexing, and handed over."""
    L = q.shape[1]
    distances = np.arange(1 - L, L)
    buckets = jnp.asarray(
        t5_bucket(distances, num_buckets=32, max_distance=128, bidirectional=True)
    )
    row = jnp.arange(L)[None, :] - jnp.arange(L)[:, None] + L - 1
    return jax.nn.dot_product_attention(q, k, v, bias=table[:, buckets[row]][None])


def _device(size: Size) -> Any:
    return jax.devices("gpu" if size.device == "cuda" else size.device)[0]


def _numbers(size: Size, *shape: int) -> Any:
    drawn = np.random.default_rng(list(shape)).standard_normal(shape, np.float32)
    return jnp.asarray(drawn).astype(size.dtype)


def _function(
    attention: Callable[..., jax.Array],
    tables: Callable[[Size], tuple[tuple[int, ...], ...]] = lambda size: (),
) -> Callable[[Size], Calls]:
    """Calls of a function of q, k, v and tables with these shapes, each compiled as a whole."""

    def build(size: Size) -> Calls:
        shapes = [(size.B, size.L, size.H, size.d)] * 3
        inputs = [_numbers(size, *shape) for shape in shapes]
        inputs += [0.1 * _numbers(size, *shape) for shape in tables(size)]
        cotangent, *inputs = jax.device_put((inputs[0], *inputs), _device(size))

        def gradients(cotangent: Any, *inputs: Any) -> Any:
            output, back = jax.vjp(attention, *inputs)
            return output, back(cotangent)

        compiled_forward = jax.jit(attention).lower(*inputs).compile()
        compiled_both = jax.jit(gradients).lower(cotangent, *inputs).compile()

        def forward() -> None:
            jax.block_until_ready(compiled_forward(*inputs))  # type: ignore[no-untyped-call]

        def both() -> None:
            jax.block_until_ready(  # type: ignore[no-untyped-call]
                compiled_both(cotangent, *inputs)
            )

        return Calls(forward, both)

    return build


_plain = _function(jax.nn.dot_product_attention)


def _ours(work: Work, kernel: str) -> Contender:
    def build(size: Size) -> Calls:
        scheme = work.scheme(size)
        table = scheme.parameters(size.H, size.d)

        def attention(q: Any, k: Any, v: Any, *params: Any) -> jax.Array:
            named = {p.name: array for p, array in zip(table, params, strict=True)}
            return relpos_jax.attention(
                q, k, v, scheme, named, scale=size.d**-0.5, implementation=kernel
            )

        return _function(attention, lambda size: tuple(p.shape for p in table))(size)

    return Contender(
        f"relpos {work.name} in JAX" + ("" if kernel == "auto" else f", {kernel}"),
        "jax", "function", work.name, build, ours=True, products=work.products,
        longest=work.longest if kernel != "dense" else 4096,
        quick=kernel == "auto" and work.name in ("Shaw, every distance", "T5"),
    )  # fmt: skip
