"""The catalogue: every scheme states its facts, and `relpos schemes` shows them in any width."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest
from typer.testing import CliRunner

from relpos.cli.app import build_app
from relpos.cli.convert import parse_scheme
from relpos.errors import SettingError
from relpos.parity.run import Request
from relpos.schemes import SCHEMES, Scheme, find_scheme
from relpos.schemes.catalogue import (
    blocks,
    example_of,
    explanation,
    meanings,
    nested,
    references,
    summary,
)

each_scheme = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)


def show(*words: str, columns: int = 100) -> str:
    """What `relpos schemes` prints on a terminal of that width."""
    result = CliRunner(env={"COLUMNS": str(columns), "NO_COLOR": "1"}).invoke(
        build_app(), ["schemes", *words]
    )
    assert result.exit_code == 0, result.output
    return result.output


@each_scheme
def test_a_scheme_states_its_facts_itself(scheme: type[Scheme]) -> None:
    own = vars(scheme)
    # A subclass would otherwise inherit another paper's name.
    assert {"name", "paper", "url", "used_by", "extrapolates"} <= own.keys()
    assert re.fullmatch(r"\S.*, \d{4}", scheme.paper), "authors and year: 'Shaw et al., 2018'"
    assert re.fullmatch(r"https://[^\s,;)]+[^\s,;).]", scheme.url)
    assert scheme.url in (inspect.getdoc(scheme) or ""), "the docstring names the title beside it"
    assert isinstance(scheme.used_by, tuple)
    assert all(name.strip() == name != "" for name in scheme.used_by)
    facts = (
        scheme.extrapolates,
        scheme.causal_only,
        scheme.dense_only,
        scheme.content_only,
    )
    assert [type(fact) for fact in facts] == [bool] * 4


@each_scheme
def test_a_scheme_explains_itself_in_a_form_that_can_be_shown(scheme: type[Scheme]) -> None:
    assert summary(scheme).endswith(".")
    assert references(scheme)[0] == scheme.url
    for kind in (scheme, *(inner for kinds in nested(scheme).values() for inner in kinds)):
        assert meanings(kind).keys() >= {field.name for field in dataclasses.fields(kind)}
    pieces = blocks(explanation(scheme))
    assert any(kind == "formula" and "score" in text for kind, text in pieces)
    for kind, text in pieces:
        if kind == "table":
            assert len({line.count("|") for line in text.splitlines()}) == 1, text


def test_the_catalogue_lists_every_scheme() -> None:
    lines = show("--heads", "3", "--embed-dim", "30").splitlines()
    names = [line.split()[0] for line in lines if line[:1].strip()]
    assert [name for name in names if name in SCHEMES] == list(SCHEMES)
    assert any("bias_table [3, 32]" in line for line in lines)
    assert any("key_table [1, 33, 10]" in line for line in lines)


def test_a_scheme_that_the_sizes_do_not_suit_says_so_in_its_row() -> None:
    shown = " ".join(show("--heads", "3", "--embed-dim", "21").split())
    assert "not at these sizes: RoPE rotates whole pairs" in shown


@pytest.mark.parametrize("columns", [80, 120])
def test_everything_fits_the_terminal(columns: int) -> None:
    shown = [show(*words, columns=columns) for words in ((), *((name,) for name in SCHEMES))]
    too_long = [
        line
        for text in shown
        for line in text.splitlines()
        # An address is not broken.
        if len(line.rstrip()) > columns and "https://" not in line
    ]
    assert too_long == []


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_shows_its_formula_settings_and_papers(name: str) -> None:
    shown = show(name.swapcase())
    assert re.search(r"^  \S.* = ", shown, re.MULTILINE)
    assert all(url in shown for url in references(SCHEMES[name]))
    for setting in example_of(SCHEMES[name]).to_dict().keys() - {"scheme"}:
        assert f"\n{setting} " in shown


def test_names_are_typed_in_small_or_capital_letters_everywhere() -> None:
    assert find_scheme("NOPOSITION") is SCHEMES["NoPosition"]
    assert parse_scheme("rope", ["layout=half"]) == SCHEMES["RoPE"]("half")  # type: ignore[call-arg]
    rows = Request(("shaw KEYS", "t5")).rows
    assert rows == Request(("Shaw keys", "T5")).rows != ()
    with pytest.raises(SettingError, match=r"Got 'Rotary'; expected one of NoPosition, "):
        find_scheme("Rotary")
