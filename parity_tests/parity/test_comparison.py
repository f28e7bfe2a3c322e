"""The comparison core: what passes, what fails, and what it says about it."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from relpos.parity import Estimate, Verdict, compare, compare_exact, compare_pair

VALUE = np.array([[1.0, -2.0, 0.0], [4.0, 0.5, 3.0]])


def estimate(budget: float = 0.25) -> Estimate:
    return Estimate(VALUE, np.full(VALUE.shape, budget))


def test_an_error_at_its_budget_passes_and_one_past_it_fails() -> None:
    at, past = VALUE.copy(), VALUE.copy()
    at[1, 2] += 0.25
    past[1, 2] = np.nextafter(3.25, 4.0)
    assert compare(estimate(), at).ratio == 1.0
    assert compare(estimate(), at).verdict is Verdict.PASS
    assert compare(estimate(), past).verdict is Verdict.FAIL


def test_the_worst_entry_is_named_with_the_tolerances_that_would_pass() -> None:
    candidate = VALUE + np.array([[0.1, 0.0, 0.05], [0.0, -0.2, 0.1]])
    found = compare(estimate(), candidate, distance_of=lambda index: index[1] - index[0])
    assert found.index == (1, 1)
    assert found.distance == 0
    assert found.ratio == pytest.approx(0.8)
    assert found.atol == pytest.approx(0.2)
    assert found.rtol == math.inf  # an error where the value is 0
    assert found.count == 6
    assert (found.got, found.expected, found.budget) == (0.3, 0.5, 0.25)


def test_the_worst_entry_is_the_worst_ratio_not_the_worst_error() -> None:
    reference = Estimate(np.zeros(3), np.array([1.0, 1e-6, 1.0]))
    assert compare(reference, np.array([0.5, 1e-5, 0.0])).index == (1,)


def test_a_budget_of_zero_must_be_met_exactly() -> None:
    assert compare(estimate(0.0), VALUE).verdict is Verdict.PASS
    off = VALUE.copy()
    off[0, 2] = 5e-324
    found = compare(estimate(0.0), off)
    assert found.ratio == math.inf
    assert found.index == (0, 2)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_passes_only_where_the_reference_has_the_same(bad: float) -> None:
    with_bad = VALUE.copy()
    with_bad[0, 1] = bad
    assert compare(estimate(), with_bad).verdict is Verdict.FAIL
    reference = Estimate(with_bad, np.full(VALUE.shape, 0.25))
    assert compare(reference, with_bad).verdict is Verdict.PASS
    assert compare(reference, VALUE).verdict is Verdict.FAIL
    assert compare(reference, -with_bad).verdict is Verdict.FAIL


def test_a_budget_that_is_no_number_allows_nothing() -> None:
    reference = Estimate(VALUE, np.full(VALUE.shape, math.nan))
    assert compare(reference, VALUE + 1e-9).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("candidate", "problem"),
    [(VALUE.T, "shape [3, 2], expected [2, 3]"), (VALUE[0], "shape [3], expected [2, 3]")],
)
def test_a_wrong_shape_is_a_failure_and_nothing_is_broadcast(
    candidate: np.ndarray, problem: str
) -> None:
    found = compare(estimate(), candidate)
    assert found.verdict is Verdict.FAIL
    assert found.problem == problem
    assert found.count == 0


def test_a_wrong_dtype_is_a_failure_where_the_dtype_matters() -> None:
    assert compare(estimate(), VALUE.astype(np.float32)).verdict is Verdict.PASS
    found = compare(estimate(), VALUE.astype(np.float32), dtype="float64")
    assert found.problem == "dtype float32, expected float64"
    assert found.verdict is Verdict.FAIL


def test_bfloat16_is_compared_by_its_values() -> None:
    stored = VALUE.astype(ml_dtypes.bfloat16)
    assert compare(estimate(0.0), stored, dtype="bfloat16").verdict is Verdict.PASS


def test_nothing_to_compare_is_a_failure() -> None:
    empty = Estimate(np.zeros((0, 3)), np.zeros((0, 3)))
    assert compare(empty, np.zeros((0, 3))).verdict is Verdict.FAIL


def test_a_pair_may_use_both_budgets() -> None:
    assert compare_pair(VALUE + 0.2, VALUE - 0.2, estimate()).ratio == pytest.approx(0.8)
    assert compare_pair(VALUE + 0.3, VALUE - 0.3, estimate()).verdict is Verdict.FAIL
    assert compare_pair(VALUE, VALUE.T, estimate()).problem == "shape [3, 2], expected [2, 3]"
    assert compare_pair(VALUE.T, VALUE, estimate()).problem == "shape [3, 2], expected [2, 3]"


def test_whole_numbers_are_exact_and_floats_are_refused() -> None:
    rows = np.array([3, 1, 4])
    assert compare_exact(rows, rows.astype(np.int32), what="rows").verdict is Verdict.PASS
    assert compare_exact(rows, rows + np.arange(3) // 2, what="rows").index == (2,)
    assert compare_exact(rows, rows.astype(float), what="rows").problem is not None
    assert compare_exact(rows > 1, rows > 1, what="mask").verdict is Verdict.PASS


@pytest.mark.parametrize("budget", [np.inf, -1.0, np.nan])
def test_a_budget_that_allows_anything_is_refused(budget: float) -> None:
    comparison = compare(Estimate(np.ones(3), np.full(3, budget)), np.full(3, 5.0))
    assert comparison.verdict is Verdict.FAIL
    assert "a budget is" in str(comparison)


@pytest.mark.parametrize("candidate", [np.full(3, 1 + 5j), np.array(["1.0"] * 3)])
def test_what_is_no_real_number_is_refused(candidate: np.ndarray) -> None:
    comparison = compare(Estimate(np.ones(3), np.ones(3)), candidate)
    assert comparison.verdict is Verdict.FAIL
    assert "expected real numbers" in str(comparison)


def test_whole_numbers_are_compared_beyond_what_a_float_can_tell_apart() -> None:
    large = np.array([2**53])
    assert compare_exact(large, large, what="rows").verdict is Verdict.PASS
    assert compare_exact(large + 1, large, what="rows").verdict is Verdict.FAIL


def test_two_sides_that_are_both_not_a_number_do_not_pass() -> None:
    nan = np.full(3, np.nan)
    comparison = compare_pair(nan, nan, Estimate(np.ones(3), np.ones(3)))
    assert comparison.verdict is Verdict.FAIL
