"""What a side must be able to do: answer a case with an output and gradients, as numpy arrays."""

from __future__ import annotations

import importlib.util
from typing import Any, Protocol

from numpy.typing import NDArray

from relpos.errors import RelposError
from relpos.parity.cases import Case

__all__ = [
    "BLOCK_ROWS",
    "MODES",
    "Answer",
    "CannotRunError",
    "Side",
    "gradient_of",
    "installed",
    "side_of",
]

#: `output`, and `gradient of NAME` for every input and parameter, in the axis order of torch.
Answer = dict[str, NDArray[Any]]

#: The ways to run each framework's functions.
MODES: dict[str, tuple[str, ...]] = {
    "torch": ("eager", "vmap", "compile", "blockwise"),
    "jax": ("eager", "jit", "vmap", "jit-vmap", "blockwise"),
}

#: Rows of a block in the mode `blockwise`: few, and they divide no other length of the roster.
BLOCK_ROWS = 4

#: What each framework needs to be there.
_PACKAGES = {"torch": ("torch", "jaxtyping"), "jax": ("jax", "flax", "jaxtyping")}


class CannotRunError(Exception):
    """The machine cannot run a side; the reason becomes the doubt of an INCONCLUSIVE check."""


class Side(Protocol):
    """One framework on one device."""

    def attention(self, case: Case, dtype: str, mode: str) -> Answer:
        """`attention` with gradients of q, k, v and every parameter."""

    def relative_scores(self, case: Case, dtype: str, mode: str) -> Answer:
        """`relative_scores` of every head, stacked, with gradients."""

    def layer(self, case: Case, dtype: str, kind: str) -> Answer:
        """The layer of this kind with gradients of its inputs and every parameter."""

    def decode(self, case: Case, dtype: str, kind: str, chunks: tuple[int, ...]) -> Answer:
        """The layer's output when the tokens come in chunks, through its cache; no gradients."""

    def allowed(self, case: Case) -> NDArray[Any]:
        """Who may attend to whom [B, H, Lq, Lk], as the side's kernels see it."""

    def __hash__(self) -> int:
        """A side equals itself alone."""

    def environment(self) -> dict[str, Any]:
        """Versions, devices and precision flags."""


def gradient_of(name: str) -> str:
    """The name of a gradient in an answer and in reports."""
    return f"gradient of {name}"


def installed(framework: str) -> bool:
    """Whether a framework can be imported."""
    return all(importlib.util.find_spec(package) for package in _PACKAGES[framework])


def side_of(framework: str, device: str = "auto") -> Side:
    """The side of a framework on a device.

    Raises:
        RelposError: The framework is not installed, or has no such device.
    """
    if not installed(framework):
        raise RelposError(
            "a parity check needs both frameworks, unless one is asked for with --only",
            got=f"{framework} is not installed",
            expected=f"pip install 'relpos[{framework}]'",
        )
    if framework == "torch":
        from relpos.parity.sides.torch_side import TorchSide

        return TorchSide(device)
    from relpos.parity.sides.jax_side import JaxSide

    return JaxSide(device)
