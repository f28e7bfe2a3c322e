"""The voice's layers in JAX and Flax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flax
import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

import relpos_jax
import relpos_jax.linen
from relpos.demo.truth import Question
from relpos.parity.sides.base import Answer, gradient_of
from relpos.weights import Weights, to_flax, to_neutral

__all__ = ["FlaxLayers"]


class FlaxLayers:
    """Layers of `relpos_jax.linen` with the voice's weights, under jit, on the CPU.

    Args:
        weights: The layers, by path; all with the same settings, so that one compilation serves.
    """

    version = f"jax {jax.__version__}, flax {flax.__version__}"

    def __init__(self, weights: Weights) -> None:
        self._settings = weights.layers
        self._cpu = jax.local_devices(backend="cpu")[0]
        with jax.default_device(self._cpu):
            self._tree = to_flax(weights)
        settings = next(iter(weights.layers.values()))
        layer = relpos_jax.linen.RelativeAttention.from_settings(settings)

        def with_gradients(tree: Any, x: Array, cotangent: Array) -> tuple[Array, Any, Array]:
            output, pull = jax.vjp(lambda tree, x: layer.apply({"params": tree}, x), tree, x)
            return output, *pull(cotangent)

        def one_head(q: Array, k: Array, tables: Mapping[str, Array]) -> Array:
            return relpos_jax.relative_scores(q, k, settings.scheme, tables)

        self._with_gradients = jax.jit(with_gradients)
        self._every_head = jax.jit(jax.vmap(one_head))

    def answer(self, path: str, question: Question) -> Answer:
        """A layer's output, and the gradients of its input and of every parameter."""
        with jax.default_device(self._cpu):
            output, by_parameter, by_x = self._with_gradients(
                self._tree[path], question.x, question.cotangent
            )
        # Gradients have the names and shapes of weights, so the same conversion serves them.
        gradients = to_neutral(by_parameter, self._settings[path])
        return {
            "output": np.asarray(output),
            gradient_of("x"): np.asarray(by_x),
            **{gradient_of(name): array for name, array in gradients.tensors.items()},
        }

    def position_scores(self, path: str, question: Question) -> NDArray[np.float32]:
        """What the positions add to the scores of q and k [H, L, L]."""
        with jax.default_device(self._cpu):
            return np.asarray(self._every_head(question.q, question.k, question.tables))

    def back(self) -> Weights:
        """The weights that the layers hold, in the neutral form."""
        return to_neutral(self._tree, self._settings)
