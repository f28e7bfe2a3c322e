"""The voice's layers in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import relpos_torch
from relpos.demo.truth import Question
from relpos.parity.sides.base import Answer, gradient_of
from relpos.weights import Weights, load_into, to_neutral

__all__ = ["TorchLayers"]


class TorchLayers:
    """Layers of `relpos_torch` with the voice's weights.

    Args:
        weights: The layers, by path.
    """

    version = f"torch {torch.__version__}"

    def __init__(self, weights: Weights) -> None:
        self._settings = weights.layers
        self._layers = {
            path: load_into(
                relpos_torch.RelativeAttention.from_settings(settings), weights.layer(path)
            )
            for path, settings in weights.layers.items()
        }

    def answer(self, path: str, question: Question) -> Answer:
        """A layer's output, and the gradients of its input and of every parameter."""
        layer = self._layers[path]
        names, parameters = zip(*layer.named_parameters(), strict=True)
        x = torch.tensor(question.x, requires_grad=True)
        output = layer(x)
        by_x, *by_parameter = torch.autograd.grad(
            output, (x, *parameters), torch.tensor(question.cotangent)
        )
        # Gradients have the names and shapes of weights, so the same conversion serves them.
        gradients = to_neutral(dict(zip(names, by_parameter, strict=True)), self._settings[path])
        return {
            "output": output.detach().numpy(),
            gradient_of("x"): by_x.numpy(),
            **{gradient_of(name): array for name, array in gradients.tensors.items()},
        }

    def position_scores(self, path: str, question: Question) -> NDArray[np.float32]:
        """What the positions add to the scores of q and k [H, L, L]."""
        scheme = self._settings[path].scheme

        def one_head(q: Tensor, k: Tensor, tables: Mapping[str, Tensor]) -> Tensor:
            return relpos_torch.relative_scores(q, k, scheme, tables)

        tables = {name: torch.tensor(table) for name, table in question.tables.items()}
        every_head = torch.func.vmap(one_head)
        scores: Tensor = every_head(torch.tensor(question.q), torch.tensor(question.k), tables)
        return scores.numpy()

    def back(self) -> Weights:
        """The weights that the layers hold, in the neutral form."""
        return Weights.join({path: to_neutral(layer) for path, layer in self._layers.items()})
