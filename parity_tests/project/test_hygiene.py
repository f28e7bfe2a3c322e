"""Tracked files: nothing of the machine they were written on, nothing left half done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parity_tests.project.tree import ROOT, tracked_files

# Written in pieces, so that this file does not find itself.
UNWANTED = {
    "a home folder": r"/(?:root|home/\w+|Users/\w+)" + "/",
    "a folder of one machine": r"(?<![\w.])/(?:work|opt|mnt)" + "/",
    "a package index's host": r"py" + r"pi\.org|pythonhosted" + r"\.org|download\.py" + "torch",
    "unfinished work": r"\b(?:TO" + "DO|FIX" + "ME|XX" + r"X)\b",
    "a leftover merge": r"^(?:<{7}|>{7}) ",
}


def findings(text: str) -> list[str]:
    """What is unwanted in a text, with the line it stands on."""
    return [
        f"{line}: {what}"
        for line, content in enumerate(text.splitlines(), 1)
        for what, pattern in UNWANTED.items()
        if re.search(pattern, content)
    ]


def text_of(path: Path) -> str | None:
    """A file's text, or None for a binary one (a picture)."""
    data = path.read_bytes()
    return None if b"\0" in data else data.decode("utf-8")


def test_tracked_files_are_clean() -> None:
    texts = {path: text_of(path) for path in tracked_files()}
    assert len(texts) > 20
    unclean = {
        str(path.relative_to(ROOT)): found
        for path, text in texts.items()
        if text is not None and (found := findings(text))
    }
    assert unclean == {}


@pytest.mark.parametrize(
    "line",
    [
        "see /ro" + "ot/notes",
        "cd /wor" + "k/main",
        "index = https://py" + "pi.org/simple",
        "# TO" + "DO: later",
        "<<<<" + "<<< ours",
    ],
)
def test_the_test_above_can_fail(line: str) -> None:
    assert len(findings(f"fine\n{line}\n")) == 1


def test_packages_hold_no_prints() -> None:
    """Libraries return; only the command line, the demo and the reports print."""
    loud = re.compile(r"^\s*print\(", re.MULTILINE)
    spoken = {
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if path.suffix == ".py"
        and path.relative_to(ROOT).parts[0] in ("relpos", "relpos_torch", "relpos_jax")
        and loud.search(path.read_text("utf-8"))
    }
    assert spoken <= {"relpos/cli/main.py"}
