"""The checkout, as the tests of this folder see it."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("relpos", "relpos_torch", "relpos_jax")


def module_name(path: Path) -> str:
    """`relpos/schemes/__init__.py` -> `relpos.schemes`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(package: str) -> list[str]:
    """Every module of a package by its dotted name, `__main__` left out."""
    files = sorted((ROOT / package).rglob("*.py"))
    return [module_name(path) for path in files if path.name != "__main__.py"]


def tracked_files() -> list[Path]:
    """Every file under version control that is still there."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).exists()]
