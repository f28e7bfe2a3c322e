"""`relpos inspect`: what is in a file of weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from relpos.cli.convert import PAGE_WIDTH, explained
from relpos.settings import AttentionSettings
from relpos.weights import LAYOUTS, Weights, find_layouts, load, read_arrays
from relpos.weights.files import is_neutral, read_metadata
from relpos.weights.neutral import Array
from relpos.weights.reading import OPTIONS

__all__ = ["inspect"]


def inspect(
    file: Annotated[
        Path, typer.Argument(help="A .safetensors, .onnx, .npz, .pt, .pth or .bin file.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a file of weights is: its layers and settings, or the layouts it matches."""
    with explained():
        if file.suffix == ".safetensors" and is_neutral(read_metadata(file)):
            description = _describe_neutral(load(file))
        else:
            description = _describe_plain(read_arrays(file))
    description = {"file": str(file), **description}
    if as_json:
        typer.echo(json.dumps(description, indent=1))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PAGE_WIDTH
    if description["kind"] == "neutral":
        _print_neutral(console, description)
    else:
        _print_plain(console, description)


def _describe_neutral(weights: Weights) -> dict[str, Any]:
    layers: dict[str, dict[str, Any]] = {
        path: {"settings": settings.to_dict(), "parameters": []}
        for path, settings in weights.layers.items()
    }
    for path, parameter, array in weights.parameters():
        layers[path]["parameters"].append(
            {
                "name": parameter.name,
                "axes": list(parameter.axes),
                "shape": list(parameter.shape),
                "dtype": array.dtype.name,
                "count": array.size,
            }
        )
    count = sum(array.size for array in weights.tensors.values())
    return {"kind": "neutral", "count": count, "layers": layers}


def _describe_plain(arrays: Mapping[str, Array]) -> dict[str, Any]:
    matches = [
        {"layout": layout, "prefix": prefix, "layers": list(layers)}
        for layout, prefix, layers in find_layouts(arrays)
    ]
    tensors = [
        {"name": name, "shape": list(a.shape), "dtype": a.dtype.name, "count": a.size}
        for name, a in arrays.items()
    ]
    count = sum(array.size for array in arrays.values())
    return {"kind": "arrays", "count": count, "layouts": matches, "tensors": tensors}


def _print_neutral(console: Console, description: dict[str, Any]) -> None:
    console.print(
        Text(
            f"{description['file']}: neutral weights of relpos, {len(description['layers'])} "
            f"layer(s), {description['count']} numbers"
        )
    )
    for path, layer in description["layers"].items():
        console.print()
        settings = AttentionSettings.from_dict(layer["settings"])
        console.print(Text(f"{f'layer {path}' if path else 'the layer'}: {settings}"))
        table = Table("parameter", "axes", "dtype", "numbers", box=box.SIMPLE_HEAD)
        for parameter in layer["parameters"]:
            axes = zip(parameter["axes"], parameter["shape"], strict=True)
            table.add_row(
                parameter["name"],
                Text("[" + ", ".join(f"{axis} {length}" for axis, length in axes) + "]"),
                parameter["dtype"],
                str(parameter["count"]),
            )
        console.print(table)


def _print_plain(console: Console, description: dict[str, Any]) -> None:
    table = Table("array", "shape", "dtype", "numbers", box=box.SIMPLE_HEAD)
    for tensor in description["tensors"]:
        shape = Text(str(tensor["shape"]))
        table.add_row(Text(tensor["name"]), shape, tensor["dtype"], str(tensor["count"]))
    console.print(table)
    file = description["file"]
    console.print(
        Text(f"{file}: {len(description['tensors'])} arrays, {description['count']} numbers")
    )
    for match in description["layouts"]:
        layout, layers = LAYOUTS[match["layout"]], match["layers"]
        console.print(
            Text(
                f"The names match the layout {layout.name} ({layout.description}) below the prefix "
                f"{match['prefix']!r}: {len(layers)} layer(s), {', '.join(map(repr, layers))}"
            )
        )
        for argument, why in layout.arguments.items():
            console.print(Text(f"  relpos convert needs {OPTIONS[argument]}: {why}."))
    if not description["layouts"]:
        console.print(Text(f"The names match none of the layouts {', '.join(LAYOUTS)}."))
