"""The READMEs: their snippets run, their commands are there, and both languages say the same."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from parity_tests.project.tree import ROOT

READMES = ("README.md", "README.zh-CN.md")
COMMANDS = {
    "demo": "pip install -c constraints.txt -e '.[demo]' && relpos demo",
    "test": "pip install -c constraints.txt -e '.[test]' && pytest",
}


def snippets(readme: str) -> list[str]:
    """Every Python block, in order."""
    text = (ROOT / readme).read_text("utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def command(readme: str, name: str) -> str:
    """The one line in the fenced block after the marker `<!-- command: NAME -->`."""
    text = (ROOT / readme).read_text("utf-8")
    pattern = rf"^<!-- command: {name} -->\n```\w*\n(.*)\n```$"
    (line,) = re.findall(pattern, text, re.MULTILINE)
    return line


def test_the_snippets_run(tmp_path: Path) -> None:
    """In order and in one process, as a reader would: a later one may use an earlier one's names.

    A process of its own, because the reader has JAX's default precision and no checked annotations.
    One language is enough: the code is the same, as a test below says.
    """
    blocks = snippets(READMES[0])
    assert len(blocks) >= 4
    script = tmp_path / "snippets.py"
    script.write_text("\n".join(blocks), "utf-8")
    result = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("readme", READMES)
def test_a_snippet_is_at_most_ten_lines(readme: str) -> None:
    lengths = [len(block.splitlines()) for block in snippets(readme)]
    assert max(lengths) <= 10, lengths


def test_both_languages_have_the_same_code() -> None:
    """Comments are translated; the syntax tree has none."""
    english, chinese = (list(map(tree, snippets(readme))) for readme in READMES)
    assert english == chinese


def tree(code: str) -> str:
    """A block's syntax, without comments."""
    return ast.dump(ast.parse(code))


@pytest.mark.parametrize("readme", READMES)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_makes_its_environment_in_one_line(readme: str, name: str) -> None:
    assert command(readme, name) == (
        "python3 -m venv .venv && . .venv/bin/activate && " + COMMANDS[name]
    )
