"""The twins mirror each other: same files, same functions, same order."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from parity_tests.project.tree import ROOT

#: A layer is one file in torch and two in flax, which has two ways to write a layer.
#: What is constant in a program has to be told to torch's compiler alone.
#: How scores are cut into blocks hangs on what each framework does fast.
#: What JAX lifts from one head to all is written for all in torch.
OWN = {
    "relpos_torch": {
        "layer.py",
        "constants.py",
        "kernels/far.py",
        "kernels/fused.py",
        "kernels/head.py",
        "kernels/near.py",
        "kernels/skewed.py",
        "kernels/workers.py",
    },
    "relpos_jax": {
        "nnx.py",
        "linen.py",
        "kernels/lifting.py",
        "kernels/blocks.py",
        "kernels/strips.py",
    },
}


def files(package: str) -> set[str]:
    """The package's Python files, relative to it, without its own."""
    found = {str(path.relative_to(ROOT / package)) for path in (ROOT / package).rglob("*.py")}
    assert found >= OWN[package]
    return found - OWN[package]


def functions(path: Path) -> list[str]:
    """The public functions and classes at the top of a file, in order."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    tree = ast.parse(path.read_text("utf-8"))
    return [n.name for n in tree.body if isinstance(n, kinds) and not n.name.startswith("_")]


def test_the_twins_have_the_same_files() -> None:
    assert files("relpos_torch") == files("relpos_jax")


@pytest.mark.parametrize("file", sorted(files("relpos_torch") | files("relpos_jax")))
def test_a_file_has_the_same_functions_in_both_twins(file: str) -> None:
    assert functions(ROOT / "relpos_torch" / file) == functions(ROOT / "relpos_jax" / file)
