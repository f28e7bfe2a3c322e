"""`relpos convert`: weights from one layout to another, with an audit of every array."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from relpos.errors import WeightsError
from relpos.schemes import Scheme
from relpos.weights import LAYOUTS, Audit, Weights, export, load, read_arrays, read_settings, save
from relpos.weights import convert as convert_arrays
from relpos.weights.files import write_safetensors, write_whole
from relpos.weights.stored import make_scheme

__all__ = ["check_outputs", "convert", "explained", "parse_scheme", "parse_settings"]

NEUTRAL = "neutral"
#: Wide enough for an audit line; a terminal's own width counts where there is one.
PAGE_WIDTH = 140


def convert(
    source: Annotated[Path, typer.Argument(help="File of weights to read; it is left as it is.")],
    target: Annotated[Path, typer.Argument(help="The .safetensors file to write.")],
    from_layout: Annotated[
        str, typer.Option("--from", help=f"Layout of SOURCE: {NEUTRAL}, {', '.join(LAYOUTS)}.")
    ],
    to_layout: Annotated[str, typer.Option("--to", help="Layout of TARGET.")] = NEUTRAL,
    prefix: Annotated[
        str, typer.Option(help="What the names of the part to convert begin with in SOURCE.")
    ] = "",
    target_prefix: Annotated[str, typer.Option(help="Put before every name in TARGET.")] = "",
    heads: Annotated[int | None, typer.Option(min=1, help="Query heads H.")] = None,
    kv_heads: Annotated[
        int | None, typer.Option(min=1, help="Key and value heads G, if not read off the shapes.")
    ] = None,
    scheme: Annotated[
        str | None, typer.Option(help="The scheme by name, or with its settings as JSON.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="One setting of the scheme, such as left=4. Repeatable."),
    ] = None,
    causal: Annotated[bool, typer.Option("--causal", help="The layers are causal.")] = False,
    scale: Annotated[
        float | None, typer.Option(help="Factor on <q, k>, if not the scheme's own.")
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="Names below the prefix to leave behind, * for anything. Repeatable."),
    ] = None,
    audit: Annotated[Path | None, typer.Option(help="Write the audit as JSON here.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace TARGET and the audit file.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, write nothing.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Name the arrays outside the prefix too.")
    ] = False,
) -> None:
    """Convert weights from one layout to another; every array is accounted for.

    Sizes are read off the shapes. What weights do not tell (the number of heads, the scheme,
    causal) must be said, unless SOURCE is a neutral file, which holds it.

    Example: relpos convert voice.onnx out.safetensors --from vits --prefix enc_p.encoder. --heads 2
    """
    for layout in (from_layout, to_layout):
        if layout != NEUTRAL and layout not in LAYOUTS:
            raise WeightsError(
                "a layout must be known by name",
                got=layout,
                expected=f"one of {', '.join((NEUTRAL, *LAYOUTS))}",
            )
    _check_paths(source, target, audit, overwrite=overwrite)
    if to_layout == NEUTRAL and (from_layout == NEUTRAL or target_prefix):
        raise WeightsError(
            "a neutral file is the end of a conversion from something else, without a prefix",
            got=f"--from {from_layout} --target-prefix {target_prefix!r}",
            expected="another --from or --to, and no --target-prefix",
        )
    audits: list[Audit] = []
    with explained():
        if from_layout == NEUTRAL:
            said = (prefix, heads, kv_heads, scheme, setting, causal, scale, drop)
            if any(option not in (None, "", False, []) for option in said):
                raise WeightsError(
                    "a neutral file holds its settings, and all of it is converted",
                    got="--prefix, --drop or an option for settings",
                    expected="none of them with --from neutral",
                )
            weights = load(source)
        else:
            arrays = read_arrays(source)
            settings = read_settings(
                arrays,
                from_layout,
                num_heads=heads,
                scheme=parse_scheme(scheme, setting or []),
                num_kv_heads=kv_heads,
                causal=causal,
                scale=scale,
                prefix=prefix,
            )
            weights, read = convert_arrays(
                arrays, from_layout, settings, prefix=prefix, drop=drop or []
            )
            audits.append(read)
        plain = None
        if to_layout != NEUTRAL:
            plain, written = export(weights, to_layout, prefix=target_prefix)
            audits.append(written)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PAGE_WIDTH
    for record in audits:
        _print_audit(console, record, verbose=verbose)
    if dry_run:
        console.print(Text(f"Everything fits. Dry run: {target} is not written."))
        return
    with explained():
        if plain is None:
            save(target, weights, overwrite=overwrite)
        else:
            write_safetensors(target, plain, overwrite=overwrite)
        if audit is not None:
            text = json.dumps(_audit_json(source, target, weights, audits), indent=1)
            write_whole(audit, [text.encode()], overwrite=overwrite)
    console.print(Text(f"Wrote {target}: {weights!r}, layout {to_layout}."))


def parse_scheme(text: str | None, settings: list[str]) -> Scheme | None:
    """The scheme of `--scheme` and `--set`: a name, or a JSON object with "scheme" in it.

    Example:
        >>> parse_scheme("T5", ["num_buckets=8", "bidirectional=false"])
        T5(num_buckets=8, max_distance=128, bidirectional=False)
    """
    values: dict[str, Any] = {}
    name = text
    if text is not None and text.lstrip().startswith("{"):
        try:
            values = json.loads(text)
        except ValueError as error:
            raise WeightsError(
                "--scheme is a name or a JSON object", got=f"{text} ({error})", expected="one"
            ) from error
        name = str(values.pop("scheme", None))
    values = parse_settings(settings, values)
    if name is None and values:
        raise WeightsError(
            "--set belongs to a scheme", got="--set without --scheme", expected="--scheme NAME"
        )
    return None if name is None else make_scheme(name, values)


def parse_settings(settings: list[str], given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The settings of `--set`, beside those that are given already.

    Example:
        >>> parse_settings(["layout=half", "rotary_dim=8"])
        {'layout': 'half', 'rotary_dim': 8}
    """
    values = dict(given or {})
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or key in values:
            raise WeightsError(
                "--set gives each setting of the scheme once",
                got=setting,
                expected="name=value, for example left=4",
            )
        try:
            values[key] = json.loads(value)
        except ValueError:
            values[key] = value
    return values


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn what the file system refuses into an error that the command line explains."""
    try:
        yield
    except FileNotFoundError as error:
        raise WeightsError(
            "the file to read must exist", got=str(error), expected="the path of a file"
        ) from error
    except OSError as error:
        raise WeightsError(
            "the file system lets this file be used", got=str(error), expected="another path"
        ) from error


def _check_paths(source: Path, target: Path, audit: Path | None, *, overwrite: bool) -> None:
    """Refuse before any work, so that nothing is half done."""
    outputs = [path for path in (target, audit) if path is not None]
    if target.suffix != ".safetensors":
        raise WeightsError(
            "weights are written as safetensors, which loses nothing",
            got=str(target),
            expected="a name that ends in .safetensors",
        )
    if len({path.resolve() for path in (source, *outputs)}) < 1 + len(outputs):
        raise WeightsError(
            "the source stays as it is, and every output has a file of its own",
            got=", ".join(str(path) for path in (source, *outputs)),
            expected="different paths",
        )
    check_outputs(outputs, overwrite=overwrite)


def check_outputs(outputs: list[Path], *, overwrite: bool) -> None:
    """Refuse to write over a file unasked, or where there is no folder."""
    taken = [str(path) for path in outputs if path.exists()]
    if taken and not overwrite:
        raise WeightsError(
            "a file that is there is not replaced unasked",
            got=", ".join(taken),
            expected="another path, or --overwrite",
        )
    for path in outputs:
        if not path.parent.is_dir():
            raise WeightsError(
                "the folder of an output exists", got=str(path.parent), expected="a folder"
            )


def _print_audit(console: Console, audit: Audit, *, verbose: bool) -> None:
    table = Table(box=box.SIMPLE_HEAD, title_justify="left", title=str(audit))
    for heading in ("from", "shape", "dtype", "steps", "to", "shape"):
        table.add_column(heading, overflow="fold")
    inwards = audit.direction == "to neutral"
    for row in audit.rows:
        source, target = row.source, "dropped" if row.target is None else row.target
        # The title names the prefix; here it would only make every name longer.
        source = source.removeprefix(audit.prefix) if inwards else source
        target = target if inwards else target.removeprefix(audit.prefix)
        table.add_row(
            Text(source),
            _shape(row.shape),
            row.dtype,
            Text(", ".join(row.steps) or "as it is"),
            Text(target),
            _shape(row.target_shape) if row.target_shape is not None else Text(),
            style="dim" if row.use == "dropped" else None,
        )
    console.print(table)
    if verbose:
        for name in audit.outside:
            console.print(Text(f"outside: {name}"))


def _shape(shape: tuple[int, ...]) -> Text:
    return Text(str(list(shape)))


def _audit_json(
    source: Path, target: Path, weights: Weights, audits: list[Audit]
) -> dict[str, Any]:
    return {
        "source": str(source),
        "target": str(target),
        "layers": {path: settings.to_dict() for path, settings in weights.layers.items()},
        "audits": [audit.to_dict() for audit in audits],
    }
