"""The examples in docstrings run, each package in a process of its own.

Its own process, because the check of annotations wraps the functions, and doctest passes over a
wrapped function as somebody else's.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from parity_tests.project.tree import PACKAGES, ROOT, modules

RUNNER = """
import doctest, importlib, sys
failed = attempted = 0
for name in sys.argv[1:]:
    result = doctest.testmod(importlib.import_module(name))
    failed, attempted = failed + result.failed, attempted + result.attempted
print(f"{failed} of {attempted} examples failed")
"""


def run_examples(*names: str) -> str:
    """The runner's output; its last line counts the examples."""
    command = [sys.executable, "-W", "error", "-c", RUNNER, *names]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_examples_run(package: str) -> None:
    output = run_examples(*modules(package))
    failed, _, attempted, *_ = output.splitlines()[-1].split()
    assert int(failed) == 0, output
    assert int(attempted) >= 1
