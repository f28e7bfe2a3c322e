"""`relpos plot`: what a scheme adds to scores and values, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast

import numpy as np
import typer
from numpy.typing import NDArray

from relpos.cli.convert import check_outputs, explained, parse_settings
from relpos.errors import SettingError, WeightsError
from relpos.schemes import Parameter, Scheme, find_scheme
from relpos.schemes.catalogue import example_of
from relpos.settings import AttentionSettings
from relpos.weights import Weights, load
from relpos.weights.files import write_whole
from relpos.weights.neutral import joined_path
from relpos.weights.stored import make_scheme

__all__ = ["array_of", "plot"]

HEADS, HEAD_DIM, LENGTH = 4, 64, 64


def plot(
    name: Annotated[
        str | None, typer.Argument(help="The scheme; not with --weights.", metavar="[NAME]")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="One setting of the scheme, such as left=4. Repeatable."),
    ] = None,
    heads: Annotated[
        int | None, typer.Option(min=1, max=64, help=f"Heads H.  [default: {HEADS}]")
    ] = None,
    head_dim: Annotated[
        int | None, typer.Option(min=1, help=f"Head width d.  [default: {HEAD_DIM}]")
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(min=2, max=8192, help=f"Tokens L.  [default: {LENGTH}, or all there are]"),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="A neutral file: its layer is drawn.", metavar="FILE")
    ] = None,
    layer: Annotated[
        str | None, typer.Option(help="Which layer of FILE, if it has several.", metavar="PATH")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of fresh parameters and random vectors.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="The .png or .svg to write.  [default: NAME.png]", metavar="FILE"),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the picture.")] = False,
) -> None:
    """Draw what a scheme adds to scores and values: head by head, and by distance.

    Parameters are fresh ones unless they come from FILE. What depends on query and key is drawn for
    one random vector per head.

    Example: relpos plot shaw --set left=8 --set right=2 --heads 3
    """
    # Here and not above: matplotlib is an extra, and the help must not need it.
    from relpos.plot import draw, fresh, longest, pattern_of

    if weights is None:
        if name is None or layer is not None:
            raise SettingError(
                "a picture is of a scheme by NAME, or of a layer by --weights",
                got="--layer without --weights" if name else "neither",
                expected="relpos plot NAME, or relpos plot --weights FILE",
            )
        scheme = _scheme(name, setting or [])
        H, d, scale = heads or HEADS, head_dim or HEAD_DIM, None
        params = fresh(scheme, H, d, seed)
        source = f"Fresh parameters (seed {seed})" if params else "No parameters"
    else:
        if setting or heads or head_dim or name is not None:
            raise SettingError(
                "a file of weights says itself which scheme, settings and sizes it has",
                got="--weights with NAME, --set, --heads or --head-dim",
                expected="--weights FILE, and --layer PATH if it has several layers",
            )
        with explained():
            file = load(weights)
        path, settings = _layer(file, layer)
        scheme, H, d, scale = settings.scheme, settings.num_heads, settings.width, settings.scale
        params = {p.name: array_of(file, path, settings, p) for p in scheme.parameters(H, d)}
        source = f"Layer {path} of {weights.name}" if path else f"Parameters of {weights.name}"

    target = out or Path(f"{scheme.name.lower()}.png")
    form = target.suffix.removeprefix(".").lower()
    if form not in draw.FORMATS:
        raise SettingError(
            "a picture is written as PNG or SVG",
            got=str(target),
            expected="a name that ends in .png or .svg",
        )
    check_outputs([target], overwrite=overwrite)
    length = longest(scheme, LENGTH) if length is None else length
    pattern = pattern_of(
        scheme, params, num_heads=H, head_dim=d, length=length, seed=seed, scale=scale
    )
    if pattern.is_empty:
        raise SettingError(
            "a picture needs something to show",
            got=f"{scheme}, which adds 0 to every score and value with these parameters",
            expected="another scheme, or --weights with learned parameters",
        )
    content = draw.picture(
        pattern, f"{source}, H={H}, d={d}.", form=cast("Literal['png', 'svg']", form)
    )
    with explained():
        write_whole(target, [content], overwrite=overwrite)
    typer.echo(f"Wrote {target}: {scheme}, H={H}, d={d}, L={length}.")


def _scheme(name: str, settings: list[str]) -> Scheme:
    """The scheme with its defaults, example values where it has none, and the settings given."""
    kind = find_scheme(name)
    given = parse_settings(settings)
    example = {key: value for key, value in example_of(kind).to_dict().items() if key != "scheme"}
    if unknown := given.keys() - example.keys():
        raise SettingError(
            f"--set gives settings that {kind.name} has",
            got=", ".join(sorted(unknown)),
            expected=", ".join(example) or "none",
        )
    return make_scheme(kind.name, {**example, **given})


def _layer(file: Weights, path: str | None) -> tuple[str, AttentionSettings]:
    """The layer asked for, or the only one."""
    if path is None and len(file.layers) == 1:
        (path,) = file.layers
    if path is None or path not in file.layers:
        raise WeightsError(
            "a layer is named as the file names it",
            got="no --layer" if path is None else repr(path),
            expected="one of " + ", ".join(file.layers),
        )
    return path, file.layers[path]


def array_of(
    file: Weights, path: str, settings: AttentionSettings, parameter: Parameter
) -> NDArray[np.float64]:
    """A parameter of the scheme, out of the layer's own arrays if it is tied to one."""
    name = joined_path(path, parameter.tied or parameter.name)
    if name not in file.tensors:
        return np.zeros(parameter.shape)  # tied to the bias of a layer without one
    array = np.asarray(file.tensors[name], np.float64)
    if parameter.tied is None:
        return array
    # A kernel [D, G, d] stands in the scheme with its heads first, one for each query head.
    return np.repeat(np.moveaxis(array, -2, 0), settings.num_heads // array.shape[-2], axis=0)
