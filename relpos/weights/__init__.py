"""Weights: one neutral form, layouts of other people's checkpoints, and the way between them.

    weights = to_neutral(torch_layer)              numpy arrays and settings
    load_into(nnx_layer, torch_layer)              from one framework to the other
    save("voice.safetensors", weights)             one file that says what it is
    weights, audit = convert(read_arrays("voice.onnx"), "vits", settings, prefix="enc_p.encoder.")
    resize_tables(tables, old, new, "bicubic")     tables of one grid for another

Importing this package imports neither torch nor jax.
"""

from relpos.weights.arrays import read_arrays
from relpos.weights.audit import Audit, AuditRow
from relpos.weights.conversion import convert, export
from relpos.weights.files import load, save, write_safetensors
from relpos.weights.layers import load_into, to_flax, to_neutral, to_torch
from relpos.weights.layout import Drop, Entry, Layout
from relpos.weights.layouts import LAYOUTS
from relpos.weights.neutral import Weights
from relpos.weights.reading import find_layouts, layers_in, read_settings
from relpos.weights.resize import resize_tables
from relpos.weights.steps import Split, Squeeze, Step, Transpose

__all__ = [
    "LAYOUTS",
    "Audit",
    "AuditRow",
    "Drop",
    "Entry",
    "Layout",
    "Split",
    "Squeeze",
    "Step",
    "Transpose",
    "Weights",
    "convert",
    "export",
    "find_layouts",
    "layers_in",
    "load",
    "load_into",
    "read_arrays",
    "read_settings",
    "resize_tables",
    "save",
    "to_flax",
    "to_neutral",
    "to_torch",
    "write_safetensors",
]
