"""The harness catches every seeded fault in either twin, and leaves the twin as it was."""

from __future__ import annotations

import dataclasses
import importlib

import pytest

from relpos.parity import Verdict
from relpos.parity.mutations import MUTATIONS, mutated, run_mutation
from relpos.parity.sides import Side


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_fault_is_caught(name: str, framework: str, sides: dict[str, Side]) -> None:
    check = run_mutation(name, framework, sides[framework])
    assert check.verdict is Verdict.PASS, check.finding
    assert "x budget" in check.note


def test_a_twin_is_whole_again_after_a_mutation_even_if_it_raised() -> None:
    module = importlib.import_module("relpos_torch.schemes.rope")
    right = module.rotate
    with mutated("the other pairs of rotary channels", "torch"):
        wrong = module.rotate
    assert wrong is not right
    assert module.rotate is right
    with pytest.raises(ZeroDivisionError), mutated("rotated backwards", "torch"):
        raise ZeroDivisionError
    assert module.rotate is right


def test_a_fault_that_no_case_shows_fails(
    sides: dict[str, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    harmless = dataclasses.replace(MUTATIONS["rotated backwards"], replace=lambda fw, right: right)
    monkeypatch.setitem(MUTATIONS, "harmless", harmless)
    check = run_mutation("harmless", "torch", sides["torch"])
    assert check.verdict is Verdict.FAIL
    assert "blind" in check.finding
