"""The distribution builds, and the wheel works in a fresh environment, away from the checkout.

Nothing is downloaded: the build backend is part of the test extra, and the fresh environment
borrows the dependencies of this one through a `.pth` file, which adds their folder to the path
but runs none of the `.pth` files in it, so that the checkout itself stays out of reach.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import relpos
from parity_tests.project.tree import PACKAGES, ROOT, tracked_files


def run(*command: str | Path, cwd: Path) -> str:
    """A command's output; its errors are shown if it fails."""
    # Whoever tests with PYTHONPATH set would otherwise import the checkout after all.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    words = list(map(str, command))
    result = subprocess.run(
        words, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{words}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel built from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with the wheel."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=built)
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
    run(*pip, "install", "--no-deps", "--no-index", wheel, cwd=built)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    return folder


def python_files(*tops: str) -> set[str]:
    """Tracked Python files below some top folders of the checkout."""
    names = {path.relative_to(ROOT) for path in tracked_files() if path.suffix == ".py"}
    return {name.as_posix() for name in names if name.parts[0] in tops}


def test_the_wheel_holds_the_three_packages_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    info = f"relpos-{relpos.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {*PACKAGES, info}
    assert names >= {f"{package}/py.typed" for package in PACKAGES}
    assert names >= python_files(*PACKAGES)
    assert f"{info}/licenses/LICENSE" in names


def test_the_wheel_describes_itself_with_the_readme(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"relpos-{relpos.__version__}.dist-info/METADATA").decode("utf-8")
    assert metadata.endswith((ROOT / "README.md").read_text("utf-8"))


def test_the_sdist_holds_the_tests_too(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= python_files(*PACKAGES, "parity_tests")
    assert names >= {"pyproject.toml", "constraints.txt", "LICENSE", "CHANGELOG.md", ".ci/run"}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_wheel_imports_away_from_the_checkout(
    package: str, installed: Path, tmp_path: Path
) -> None:
    code = f"import sys, {package}\nprint({package}.__file__)\nprint({str(ROOT)!r} in sys.path)"
    file, checkout_in_reach = run(
        installed / "bin" / "python", "-c", code, cwd=tmp_path
    ).splitlines()
    assert Path(file).is_relative_to(installed)
    assert (Path(file).parent / "py.typed").exists()
    assert checkout_in_reach == "False"


def test_the_wheel_brings_the_command(installed: Path, tmp_path: Path) -> None:
    output = run(installed / "bin" / "relpos", "--version", cwd=tmp_path)
    assert output == f"relpos {relpos.__version__}\n"
