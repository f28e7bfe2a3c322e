"""The voice in onnxruntime: what goes into every attention layer and what comes out of it.

The model stays as it is but for its outputs: the input of each query projection and the output of
each output projection. Optimisations that rewrite the graph are off, so that the engine computes
the operations that the file holds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpos.demo.voice import Voice
from relpos.errors import WeightsError
from relpos.weights.optional import need

__all__ = ["Engine", "Recording"]

#: Path of a layer -> its input and its output, each [1, L, D].
Recording = dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]

#: No noise and unit length: the encoder does not read them, but the model asks for them.
_SCALES = np.array([0.0, 1.0, 0.0], np.float32)


class Engine:
    """onnxruntime with a voice whose inner values can be seen.

    Args:
        voice: The voice.

    Raises:
        WeightsError: The graph lacks the operations that the names promise, or does not run.
    """

    def __init__(self, voice: Voice) -> None:
        onnx = need("onnx", "demo")
        model = onnx.load(str(voice.path))
        self._path, self._layers = voice.path, tuple(voice.weights.layers)
        reading = {name: node for node in model.graph.node for name in node.input}
        names = []
        for layer in self._layers:
            at = f"{voice.prefix}attn_layers.{layer}"
            names.append(_node(reading, f"{at}.conv_q.weight", voice.path).input[0])
            names.append(_node(reading, f"{at}.conv_o.weight", voice.path).output[0])
        self.num_symbols = _num_symbols(model, voice.path)
        del model.graph.output[:]
        for name in names:
            model.graph.output.append(
                onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            )
        ort = need("onnxruntime", "demo")
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        try:
            self._session = ort.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's errors share no base class of their own
            raise _not_running(voice.path, error) from error

    @property
    def version(self) -> str:
        """Of onnxruntime."""
        return str(need("onnxruntime", "demo").__version__)

    def record(self, ids: NDArray[np.int64]) -> Recording:
        """Run the voice on tokens [L]."""
        feed = {
            "input": ids[None],
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": _SCALES,
            "sid": np.zeros(1, np.int64),
        }
        wanted = [value.name for value in self._session.get_inputs()]
        if unknown := sorted(set(wanted) - feed.keys()):
            raise WeightsError(
                f"{self._path} asks for what voices of this family ask for",
                got=f"an input {', '.join(unknown)}",
                expected=", ".join(feed),
            )
        try:
            values = self._session.run(None, {name: feed[name] for name in wanted})
        except Exception as error:  # as above
            raise _not_running(self._path, error) from error
        # Convolutions keep channels first; the layers, and everything here, keep them last.
        seen = [np.ascontiguousarray(value.swapaxes(1, 2)) for value in values]
        return dict(zip(self._layers, zip(seen[::2], seen[1::2], strict=True), strict=True))


def _node(reading: dict[str, Any], name: str, path: Path) -> Any:
    node = reading.get(name)
    if node is None or node.op_type != "Conv":
        raise WeightsError(
            f"{path} uses its projections as convolutions",
            got=f"{name} read by {'nothing' if node is None else node.op_type}",
            expected="Conv",
        )
    return node


def _num_symbols(model: Any, path: Path) -> int:
    """Rows of the table that the input `input` picks from."""
    rows = {array.name: int(array.dims[0]) for array in model.graph.initializer if array.dims}
    for node in model.graph.node:
        if node.op_type == "Gather" and node.input[1] == "input" and node.input[0] in rows:
            return rows[node.input[0]]
    raise WeightsError(
        f"{path} looks its tokens up in an embedding",
        got="no Gather from an initialiser by the input `input`",
        expected="one",
    )


def _not_running(path: Path, error: Exception) -> WeightsError:
    first = str(error).strip().split("\n")[0]
    return WeightsError(f"{path} runs in onnxruntime", got=first, expected="a voice that does")
