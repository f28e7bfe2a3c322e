"""PyTorch: plain attention, our schemes, and what people write or install instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import relpos_torch
from relpos.bench import torch_peers as peers
from relpos.bench.contender import Calls, Contender, Size
from relpos.bench.result import PLAIN
from relpos.bench.works import WORKS, Work
from relpos.settings import AttentionSettings

__all__ = ["contenders", "matrix_product"]


def contenders(kernels: Sequence[str]) -> list[Contender]:
    """Everyone, plain attention first.

    Args:
        kernels: Kernels of ours that are measured beside the one that `auto` takes.
    """
    found = [
        Contender(PLAIN["torch", "function"], "torch", "function", "no positions", _plain),
        *(_ours(work, kernel) for work in WORKS for kernel in ("auto", *kernels)),
        Contender(
            "q E^T and gather", "torch", "function", "Shaw, every distance",
            _function(peers.gathered, lambda size: ((1, 2 * size.L - 1, size.d),)),
            products=(3, 11), longest=4096,
        ),
        Contender(
            "SDPA with the bias written out", "torch", "function", "T5",
            _function(peers.materialised_t5, lambda size: ((size.H, 32),)), longest=8192,
        ),
        Contender(
            "SDPA with slopes written out", "torch", "function", "ALiBi",
            _function(peers.materialised_alibi), longest=8192,
        ),
        Contender(
            "compiled flex_attention", "torch", "function", "ALiBi",
            _function(peers.flex_alibi, compiled=True), longest=4096, quick=False,
        ),
        Contender(
            "rotary-embedding-torch and SDPA", "torch", "function", "RoPE",
            _rotary, needs=("rotary_embedding_torch",),
        ),
        Contender(PLAIN["torch", "layer"], "torch", "layer", "no positions", _plain_layer),
        *(_our_layer(work) for work in WORKS if work.layer),
        Contender(
            "a layer by hand, [L, L, d] gathered", "torch", "layer", "Shaw, every distance",
            _layer(peers.by_hand), products=(3, 11), longest=2048,
        ),
        Contender(
            "transformers T5Attention", "torch", "layer", "T5",
            _layer(peers.transformers_t5), needs=("transformers",), longest=8192,
        ),
        Contender(
            "transformers Wav2Vec2-BERT", "torch", "layer", "Shaw, reach 64 and 8",
            _layer(peers.transformers_wav2vec2_bert), needs=("transformers",),
            longest=2048, quick=False,
        ),
        Contender(
            "transformers Wav2Vec2-Conformer", "torch", "layer", "Transformer-XL",
            _layer(peers.transformers_conformer), products=(3, 11), needs=("transformers",),
            longest=8192, quick=False,
        ),
        Contender(
            "transformers DeBERTa-v2", "torch", "layer", "DeBERTa",
            _layer(peers.transformers_deberta), needs=("transformers",), longest=4096, quick=False,
        ),
        Contender(
            "x-transformers with ALiBi", "torch", "layer", "ALiBi",
            _layer(peers.x_transformers_alibi), needs=("x_transformers",), longest=8192,
        ),
    ]  # fmt: skip
    return found


def matrix_product(size: Size) -> tuple[Callable[[], None], float]:
    """A large matrix product and its operations, to measure the machine's rate with."""
    n = 2048
    a, b = (torch.randn(n, n, dtype=_dtype(size), device=size.device) for _ in range(2))
    out = torch.empty_like(a)
    return _call(lambda: torch.mm(a, b, out=out), size), 2.0 * n**3


def _dtype(size: Size) -> torch.dtype:
    return getattr(torch, size.dtype)  # type: ignore[no-any-return]


def _draw(size: Size, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=_dtype(size), device=size.device)


def _call(function: Callable[[], Any], size: Size) -> Callable[[], None]:
    """The function, and then the wait until the device has done it."""

    def call() -> None:
        function()
        if size.device != "cpu":
            torch.cuda.synchronize()

    return call


def _calls(function: Callable[[], Tensor], leaves: Sequence[Tensor], size: Size) -> Calls:
    """Forward without a graph, and forward with the gradients of the leaves."""
    cotangent = torch.randn_like(function())
    for leaf in leaves:
        leaf.requires_grad_()

    def forward() -> None:
        with torch.no_grad():
            function()

    def both() -> None:
        torch.autograd.grad(function(), leaves, cotangent)

    return Calls(_call(forward, size), _call(both, size))


def _function(
    attention: Callable[..., Tensor],
    tables: Callable[[Size], tuple[tuple[int, ...], ...]] = lambda size: (),
    compiled: bool = False,
) -> Callable[[Size], Calls]:
    """Calls of a function of q, k, v and tables with these shapes."""

    def build(size: Size) -> Calls:
        inputs = [_draw(size, size.B, size.H, size.L, size.d) for _ in range(3)]
        inputs += [0.1 * _draw(size, *shape) for shape in tables(size)]
        call = torch.compile(attention) if compiled else attention
        if compiled and size.device == "cpu":
            # It has no backward on a CPU.
            return Calls(_calls(lambda: call(*inputs), (), size).forward, None)
        return _calls(lambda: call(*inputs), inputs, size)

    return build


_plain = _function(scaled_dot_product_attention)


def _rotary(size: Size) -> Calls:
    rotate = peers.rotary(size)
    return _function(lambda q, k, v: scaled_dot_product_attention(rotate(q), rotate(k), v))(size)


def _ours(work: Work, kernel: str) -> Contender:
    def build(size: Size) -> Calls:
        scheme = work.scheme(size)
        params = {p.name: 0.1 * _draw(size, *p.shape) for p in scheme.parameters(size.H, size.d)}
        q, k, v = (_draw(size, size.B, size.H, size.L, size.d) for _ in range(3))

        def attention() -> Tensor:
            return relpos_torch.attention(
                q, k, v, scheme, params, scale=size.d**-0.5, implementation=kernel
            )

        return _calls(attention, [q, k, v, *params.values()], size)

    return Contender(
        f"relpos {work.name}" + ("" if kernel == "auto" else f", {kernel}"),
        "torch", "function", work.name, build, ours=True, products=work.products,
        longest=work.longest if kernel != "dense" else 4096,
        quick=work.quick and kernel == "auto",
    )  # fmt: skip


def _our_layer(work: Work) -> Contender:
    def build(size: Size) -> Calls:
        settings = AttentionSettings(size.H * size.d, size.H, work.scheme(size))
        layer = relpos_torch.RelativeAttention.from_settings(
            settings, dtype=_dtype(size), device=size.device
        )
        return _layer(lambda size: (layer, layer))(size)

    return Contender(
        f"relpos {work.name} layer",
        "torch", "layer", work.name, build, ours=True, products=work.products,
        longest=work.longest, quick=work.quick,
    )  # fmt: skip


def _layer(
    make: Callable[[Size], tuple[nn.Module, Callable[[Tensor], Tensor]]],
) -> Callable[[Size], Calls]:
    """Calls of a layer of x: `make` gives the module and how it is called."""

    def build(size: Size) -> Calls:
        module, call = make(size)
        module = module.to(size.device, _dtype(size)).eval()
        x = _draw(size, size.B, size.L, size.H * size.d)
        output = call(x)
        learned = [p for p in module.parameters() if p.requires_grad]
        used = torch.autograd.grad(output.sum(), learned, allow_unused=True)
        leaves = [x, *(p for p, g in zip(learned, used, strict=True) if g is not None)]
        return _calls(lambda: call(x), leaves, size)

    return build


_plain_layer = _layer(peers.plain_layer)
