"""The roster: its cases are what they say, read every table row, and wrong inputs are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jaxtyping
import numpy as np
import pytest
import torch

from relpos.parity import Verdict, reference
from relpos.parity.cases import Case, numpy_dtype
from relpos.parity.coverage import coverage, entry_distances
from relpos.parity.integers import check_buckets, check_masks
from relpos.parity.roster import COMMON_WRONGS, ROSTER, Row, Wrong
from relpos.parity.run import DTYPES
from relpos.parity.sides import Side
from relpos.schemes import SCHEMES, T5, NoPosition, Shaw
from relpos_torch.kernels import KERNELS, dense

ROWS = list(ROSTER.values())
CASES = [case for row in ROWS for case in (*row.cases, *row.layer_cases, row.decode_case)]
row_param = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def test_every_scheme_is_in_the_roster() -> None:
    assert {row.scheme.name for row in ROWS} == set(SCHEMES)


def test_the_representatives_have_every_kind_of_term_between_them(
    sides: dict[str, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: dict[str, set[str]] = {}

    def watched(q: torch.Tensor, *others: Any, **options: Any) -> torch.Tensor:
        terms = {name: value for name, value in vars(others[2]).items() if "scale" not in name}
        empty = [name for name, value in terms.items() if value is None or value == ()]
        kinds[row.name] = terms.keys() - set(empty)
        if not np.array_equal(q.detach().numpy(), row.cases[0].inputs("float32").q):
            kinds[row.name].add("rotation")
        return dense(q, *others, **options)

    monkeypatch.setitem(KERNELS, "dense", watched)
    for row in ROWS:
        sides["torch"].attention(row.cases[0], "float32", "eager")
    represented = set().union(*(kinds[row.name] for row in ROWS if row.representative))
    for name, own in kinds.items():
        assert own <= represented, f"{name} is the first row with such a term: representative=True"


def test_lengths_and_widths_cannot_be_confused() -> None:
    for case in CASES:
        if case.Lq > 1:
            letters = {case.B, case.H, case.Lk, case.d, case.D}
            assert len(letters) == 5, case
            assert case.D % (case.H * case.d), case


@pytest.mark.parametrize("dtype", [*DTYPES, "float16"])
def test_inputs_are_the_same_each_time_and_of_the_dtype(dtype: str) -> None:
    case = Case("cross", Shaw(3, 2), mask="full", positions="packed")
    one, two = case.inputs(dtype), case.inputs(dtype)
    assert one.q.dtype == numpy_dtype(dtype)
    for name in ("q", "k", "v", "cotangent", "mask", "query_positions", "key_positions"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert not np.array_equal(one.q, case.replace(seed=1).inputs(dtype).q)


def test_masks_and_positions_are_what_their_names_say() -> None:
    full = Case("m", NoPosition(), mask="full").inputs("float32").mask
    assert full is not None
    nothing = ~full.any(-1)
    assert nothing.any()
    assert not nothing.all()
    packed = Case("p", NoPosition(), positions="packed").inputs("float32")
    assert packed.key_positions is not None
    assert packed.key_positions.shape == (2, 7)
    assert packed.key_positions.max() > 2**16
    shuffled = Case("s", NoPosition(), positions="shuffled").inputs("float32").key_positions
    assert shuffled is not None
    assert (np.diff(shuffled) < 0).any()
    assert (np.diff(shuffled) > 0).any()


@row_param
def test_the_cases_read_every_table_entry_that_exists(row: Row) -> None:
    results = [(case.H, reference.result("attention", case, "float32")) for case in row.cases]
    check, about = coverage(row, results)
    assert check.verdict is Verdict.PASS, check.finding
    assert about["distances"]


def test_unread_entries_are_inconclusive_with_the_length_to_use() -> None:
    row = ROSTER["T5"]
    case = Case("short", row.scheme, Lq=2, Lk=89)
    check, _ = coverage(row, [(case.H, reference.result("attention", case, "float32"))])
    assert check.verdict is Verdict.INCONCLUSIVE
    assert "an input of length 92 reads it" in check.finding


def test_nothing_read_at_all_is_no_pass() -> None:
    assert coverage(ROSTER["RoPE half"], [])[0].verdict is Verdict.FAIL


def test_an_entry_that_no_distance_reads_is_not_asked_for() -> None:
    entries = entry_distances(T5(), num_heads=1)["bias_table"]
    assert len(entries) == 31
    assert (0, 16) not in entries


@row_param
def test_buckets_are_exact(row: Row) -> None:
    if isinstance(row.scheme, T5):
        check = check_buckets(row)
        assert check.verdict is Verdict.PASS, check.finding


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_masks_are_exact(framework: str, sides: dict[str, Side]) -> None:
    check = check_masks(ROSTER["NoPosition"], sides[framework], framework)
    assert check.verdict is Verdict.PASS, check.finding


WRONGS = [(row, wrong) for row in ROWS for wrong in row.wrong]
WRONGS += [(ROSTER["NoPosition"], wrong) for wrong in COMMON_WRONGS]


@pytest.fixture
def unchecked_annotations() -> Iterator[None]:
    """Without the run-time check of annotations, which would speak before our own errors do."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("unchecked_annotations")
@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize(("row", "wrong"), WRONGS, ids=[f"{r.name}-{w.name}" for r, w in WRONGS])
def test_wrong_inputs_are_refused_in_words(
    row: Row, wrong: Wrong, framework: str, sides: dict[str, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    def attempt() -> None:
        if wrong.settings is not None:
            wrong.settings()
            return
        case = row.cases[0].replace(**wrong.case)
        if wrong.change is not None:
            spoiled = wrong.change(case.inputs("float32"))
            monkeypatch.setattr(Case, "inputs", lambda self, dtype: spoiled)
        sides[framework].attention(case, "float32", "eager")

    with pytest.raises(wrong.error) as caught:
        attempt()
    assert wrong.message in str(caught.value)


def test_no_product_is_coarse_while_a_side_is_judged(sides: dict[str, Side]) -> None:
    # TF32 on a GPU and bfloat16 on a TPU are what float32 products are by default.
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        found = sides["torch"].environment()
        assert found["float32_matmul_precision"] == "highest"
        assert not found["cuda.matmul.allow_tf32"]
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_jax_keeps_its_configuration(sides: dict[str, Side]) -> None:
    before = jax.config.values["jax_enable_x64"], jax.config.values["jax_default_matmul_precision"]
    assert sides["jax"].environment()["default_matmul_precision"] == "highest"
    after = jax.config.values["jax_enable_x64"], jax.config.values["jax_default_matmul_precision"]
    assert before == after
