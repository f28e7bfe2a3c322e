"""Small voices of the VITS family, made up: an embedding and layers with tables in a window."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

__all__ = ["LAYERS", "LENGTH", "REACH", "SYMBOLS", "D", "H", "write_voice"]

LAYERS, H, D, REACH, SYMBOLS = 2, 3, 21, 5, 17
#: Tokens of the demo where a voice does not say how to spell: 2 * 20 + 3.
LENGTH = 43


class _Graph:
    """Nodes and initialisers under way."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: list[onnx.TensorProto] = []

    def array(self, name: str, value: NDArray[np.generic]) -> str:
        self.arrays.append(numpy_helper.from_array(value, name))
        return name

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name


def write_voice(path: Path, *, clip: bool = False, inputs: tuple[str, ...] = ()) -> Path:
    """Write a voice whose layers have one table per head.

    Args:
        path: Where to.
        clip: Repeat the tables' last rows outside the window, as no voice of the family does.
        inputs: Further inputs that the model asks for.
    """
    draw, graph, d = np.random.default_rng(11), _Graph(), D // H

    def normal(*shape: int, size: float = 1.0) -> NDArray[np.float32]:
        return (size * draw.standard_normal(shape)).astype(np.float32)

    distance = np.arange(LENGTH)[None, :] - np.arange(LENGTH)[:, None]
    rows = np.clip(distance, -REACH, REACH) + REACH
    if not clip:
        rows[abs(distance) > REACH] = 2 * REACH + 1  # the row of zeros after the table's own
    graph.array("rows", rows.astype(np.int64))
    graph.array("zeros", np.zeros((H, 1, d), np.float32))
    graph.array("split", np.array([1, H, d, LENGTH], np.int64))
    graph.array("merged", np.array([1, D, LENGTH], np.int64))
    graph.array("scale", np.array(d**-0.5, np.float32))
    embedded = graph.add("Gather", graph.array("emb", normal(SYMBOLS, D)), "input")
    x = graph.add("Transpose", embedded, perm=[0, 2, 1])
    for n in range(LAYERS):
        at = f"enc_p.encoder.attn_layers.{n}"
        kernels = {
            f"conv_{letter}": (
                graph.array(f"{at}.conv_{letter}.weight", normal(D, D, 1, size=D**-0.5)),
                graph.array(f"{at}.conv_{letter}.bias", normal(D, size=0.3)),
            )
            for letter in "qkvo"
        }
        q, k, v = (
            graph.add("Reshape", graph.add("Conv", x, *kernels[f"conv_{letter}"]), "split")
            for letter in "qkv"
        )
        key_rows, value_rows = (
            graph.add(
                "Gather",
                graph.add(
                    "Concat",
                    graph.array(f"{at}.emb_rel_{letter}", normal(H, 2 * REACH + 1, d)),
                    "zeros",
                    axis=1,
                ),
                "rows",
                axis=1,
            )
            for letter in "kv"
        )
        content = graph.add("Einsum", q, k, equation="bhdi,bhdj->bhij")
        position = graph.add("Einsum", q, key_rows, equation="bhdi,hijd->bhij")
        scores = graph.add("Mul", graph.add("Add", content, position), "scale")
        weights = graph.add("Softmax", scores, axis=-1)
        read = graph.add(
            "Add",
            graph.add("Einsum", weights, v, equation="bhij,bhdj->bhdi"),
            graph.add("Einsum", weights, value_rows, equation="bhij,hijd->bhdi"),
        )
        out = graph.add("Conv", graph.add("Reshape", read, "merged"), *kernels["conv_o"])
        x = graph.add("Add", x, out)
    asked = [helper.make_tensor_value_info("input", TensorProto.INT64, [1, LENGTH])]
    asked += [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in inputs]
    given = [helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, D, LENGTH])]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "voice", asked, given, graph.arrays),
        opset_imports=[helper.make_opsetid("", 15)],
        ir_version=8,
    )
    onnx.save(model, str(path))
    return path
