"""`__all__` is the truth: sorted out, complete, and nothing besides."""

from __future__ import annotations

import importlib
import inspect
import pickle
from types import ModuleType

import pytest

import relpos
from parity_tests.project.tree import PACKAGES, modules
from relpos import errors

MODULES = [name for package in PACKAGES for name in modules(package)]


def defined_in(module: ModuleType) -> set[str]:
    """The functions and classes that a module defines itself under a public name."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isroutine(value) or inspect.isclass(value))
        and getattr(value, "__module__", None) == module.__name__
    }


@pytest.mark.parametrize("name", MODULES)
def test_all_lists_the_public_names(name: str) -> None:
    module = importlib.import_module(name)
    listed = module.__all__
    assert len(listed) == len(set(listed))
    assert [entry for entry in listed if not hasattr(module, entry)] == []
    assert [entry for entry in listed if entry.startswith("_")] == []
    assert defined_in(module) - set(listed) == set()


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_explained(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    undocumented = [entry for entry in defined_in(module) if not vars(module)[entry].__doc__]
    assert undocumented == []


@pytest.mark.parametrize("scheme", relpos.SCHEMES.values(), ids=relpos.SCHEMES)
def test_a_scheme_states_its_paper_and_an_example(scheme: type[relpos.Scheme]) -> None:
    doc = inspect.getdoc(scheme) or ""
    assert "https://" in doc
    assert ">>> " in doc


@pytest.mark.parametrize("name", errors.__all__)
def test_errors_survive_pickling(name: str) -> None:
    error = getattr(errors, name)("lengths are equal", got=[7, 11], expected=[7, 7])
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error) == "lengths are equal. Got [7, 11]; expected [7, 7]."
    assert (again.rule, again.got, again.expected) == (error.rule, error.got, error.expected)
