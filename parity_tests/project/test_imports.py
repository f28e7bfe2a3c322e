"""What importing each package may bring in, seen from a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

#: Package -> packages that no import of it may load.
FORBIDDEN = {
    "relpos": {"torch", "jax", "jaxlib", "flax", "typer", "rich", "matplotlib", "onnx"},
    "relpos_torch": {"jax", "jaxlib", "flax", "relpos_jax", "typer", "rich"},
    "relpos_jax": {"torch", "relpos_torch", "typer"},
}


def loaded_by(statement: str) -> set[str]:
    """The top-level packages in memory after `statement`."""
    code = (
        f"{statement}\nimport json, sys\nprint(json.dumps([m.split('.')[0] for m in sys.modules]))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(json.loads(output.stdout))


@pytest.mark.parametrize("package", FORBIDDEN)
def test_a_package_imports_only_what_it_may(package: str) -> None:
    loaded = loaded_by(f"import {package}")
    assert package in loaded
    assert not loaded & FORBIDDEN[package]


@pytest.mark.parametrize(("package", "culprit"), [("relpos", "torch"), ("relpos_jax", "torch")])
def test_the_test_above_can_fail(package: str, culprit: str) -> None:
    assert culprit in loaded_by(f"import {package}, {culprit}") & FORBIDDEN[package]
