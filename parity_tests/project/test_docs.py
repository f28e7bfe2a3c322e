"""The documentation: pages made from the schemes, names that exist, examples that run."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from parity_tests.project.tree import ROOT
from relpos.schemes import SCHEMES, NoPosition, Scheme, Shaw
from relpos.weights import LAYOUTS

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def load(name: str) -> ModuleType:
    """A Python file of the documentation, which is in no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hooks = load("hooks")


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_a_scheme_has_a_page(scheme: type[Scheme]) -> None:
    page = hooks.scheme_page(scheme, with_picture=True)
    assert page.startswith(f"# {scheme.name}\n")
    assert scheme.url in page
    assert f"({Path(hooks.picture_file(scheme)).name})" in page
    assert f"::: {scheme.__module__}.{scheme.__qualname__}\n" in page
    assert any("score" in formula for formula in FENCED.findall(page))
    # A formula in the prose is no markup.
    assert not re.search(r"<(?!br>)", FENCED.sub("", page).replace("`<", ""))


def test_the_catalogue_page_links_every_scheme() -> None:
    page = hooks.catalogue_page()
    assert re.findall(r"^\| \[`(\w+)`\]", page, re.MULTILINE) == list(SCHEMES)


def test_a_scheme_that_adds_nothing_has_no_picture() -> None:
    assert hooks.picture_of(NoPosition) is None
    assert hooks.picture_of(Shaw).startswith(b"\x89PNG")
    assert ".png" not in hooks.scheme_page(NoPosition, with_picture=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_name_on_a_page_is_there(page: Path) -> None:
    for name in re.findall(r"^::: (\S+)$", hooks.on_page_markdown(page.read_text()), re.MULTILINE):
        module, _, attribute = name.rpartition(".")
        try:
            assert inspect.ismodule(importlib.import_module(name))
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), attribute), name


@pytest.mark.parametrize(
    "package", ["relpos_torch", "relpos_jax", "relpos.weights", "relpos.oracle"]
)
def test_every_exported_name_is_on_the_page_of_its_package(package: str) -> None:
    exported = {name for name in importlib.import_module(package).__all__ if not name.isupper()}
    assert {name.rpartition(".")[2] for name in hooks.public_names(package)} == exported
    assert any(f"::: every name of {package}\n" in page.read_text() for page in PAGES)


def test_the_examples_run() -> None:
    """In one process, but no page sees the names of another."""
    scripts = [
        "\n".join(re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL))
        for page in PAGES
    ]
    assert sum(bool(script) for script in scripts) >= 3
    code = "".join(f"exec({script!r}, {{}})\n" for script in scripts)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (budgets,) = re.findall(r"([\d.]+) x budget", done.stdout)
    assert float(budgets) < 1


def test_prose_of_docstrings_is_no_markup() -> None:
    pytest.importorskip("griffe")
    docstring = """Score <q, k> of [H*d, D].

        score = <q, k> * 2

    Args:
        a_b: Of `x*y` [L].

    Example:
        >>> [1 * 2]
        [2]
    """
    assert load("docstrings").as_markdown(docstring) == (
        "Score &lt;q, k> of \\[H\\*d, D\\].\n\n    score = <q, k> * 2\n\n"
        "Args:\n    a_b: Of `x*y` \\[L\\].\n\nExamples:\n    >>> [1 * 2]\n    [2]"
    )


def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = {path.stem for path in (tmp_path / "schemes").glob("*.html")}
    assert names == {"index", *(name.lower() for name in SCHEMES)}
    assert (tmp_path / "schemes" / "shaw.png").read_bytes().startswith(b"\x89PNG")


def test_every_layout_of_weights_is_listed() -> None:
    page = hooks.on_page_markdown((DOCS / "api" / "weights.md").read_text())
    assert re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE) == list(LAYOUTS)


def test_nothing_is_explained_on_two_pages() -> None:
    """Such a name has no address of its own, which mkdocs refuses."""
    texts = [hooks.on_page_markdown(page.read_text()) for page in PAGES]
    texts += [hooks.scheme_page(scheme, with_picture=True) for scheme in SCHEMES.values()]
    names = re.findall(r"^::: (\S+)$", "\n".join(texts), re.MULTILINE)
    doubled = {name for name in names if names.count(name) > 1}
    inside = {name for name in names for other in names if name.startswith(f"{other}.")}
    assert doubled | inside == set()


def test_schemes_for_longer_inputs_are_named_where_one_chooses() -> None:
    page = hooks.on_page_markdown((DOCS / "choosing.md").read_text())
    named = set(re.findall(r"\[`(\w+)`\]\(schemes/", page))
    assert named == {n for n, s in SCHEMES.items() if s.extrapolates} - {"NoPosition"} != set()
