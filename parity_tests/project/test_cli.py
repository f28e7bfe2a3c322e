"""The command line's frame: help, versions, and errors as sentences."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pytest

import relpos
from relpos.cli import app, main
from relpos.schemes import SCHEMES

#: Variables that make rich and typer colour their output even where no terminal reads it.
COLOURS = {"FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "TTY_COMPATIBLE"}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """`relpos` in a process of its own, as a terminal 100 columns wide would see it."""
    environment = {key: value for key, value in os.environ.items() if key not in COLOURS}
    return subprocess.run(
        [sys.executable, "-m", "relpos", *words],
        capture_output=True,
        text=True,
        env=environment | {"COLUMNS": "100"},
        check=False,
    )


def test_version() -> None:
    result = run("--version")
    assert (result.returncode, result.stdout) == (0, f"relpos {relpos.__version__}\n")


def test_help_names_every_command() -> None:
    result = run("--help")
    assert result.returncode == 0
    for command in app.COMMANDS:
        assert f"│ {command}" in result.stdout


def test_help_imports_no_framework() -> None:
    code = (
        "import sys\n"
        "from relpos.cli.app import build_app\n"
        "build_app()\n"
        "heavy = {'torch', 'jax', 'flax', 'onnx', 'onnxruntime', 'matplotlib'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "[]"


@pytest.mark.parametrize("command", app.COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = run(command, "--help")
    assert result.returncode == 0
    assert f"Usage: relpos {command}" in result.stdout


def test_an_unknown_word_is_a_usage_error() -> None:
    result = run("pairty")
    assert result.returncode == 2
    assert "No such command 'pairty'" in result.stderr


def test_an_error_of_ours_is_one_paragraph() -> None:
    result = run("schemes", "Rotary")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "Error: a scheme must be known by name. Got 'Rotary'; "
        f"expected one of {', '.join(SCHEMES)}.\n"
    )


@pytest.mark.parametrize("package", sorted(main.EXTRAS))
def test_a_missing_package_names_its_extra(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken_app() -> ModuleType:
        # None in sys.modules makes the import fail as that of a package that is not installed.
        monkeypatch.setitem(sys.modules, package, None)  # type: ignore[arg-type]
        return __import__(package)

    monkeypatch.setattr(app, "build_app", broken_app)
    assert main.main([]) == 2
    assert f"pip install 'relpos[{main.EXTRAS[package]}]'" in capsys.readouterr().err


def test_a_missing_module_of_another_kind_is_not_explained_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken_app() -> ModuleType:
        return __import__("relpos_no_such_module")

    monkeypatch.setattr(app, "build_app", broken_app)
    with pytest.raises(ModuleNotFoundError, match="relpos_no_such_module"):
        main.main([])
