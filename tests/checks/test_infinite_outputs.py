"""Outputs that are infinite or NaN by definition are taken out of Jacobians, must be the same, and hide nothing."""

from __future__ import annotations

import pytest

BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])
FINITE = 'outputs = { apply = "finite" }'
CHECKS = ("backward", "forward_ad", "rev_over_rev", "fwd_over_rev", "linearity", "vmap", "context", "dtypes")


def spec(name, keys=FINITE):
    samples = "samples = [{ args = [{ values = [[0.3, 0.5, -0.7], [1.2, 0.5, 0.4]] }] }]"
    return f'[[operator]]\nname = "operators.infinite.{name}"\n{keys}\n{samples}\n'


@BOTH
@pytest.mark.parametrize("name", ["masked", "masked_by_nan"])
def test_a_right_operator_passes(outcomes, name, dtype):
    found = outcomes(spec(name), checks=CHECKS, dtypes=(dtype,))
    assert {id: one.message for id, one in found.items() if one.outcome != "passed"} == {}


@BOTH
@pytest.mark.parametrize("name", ["masked_with_nan_in_backward", "masked_wrong_elsewhere"])
def test_a_wrong_one_is_caught(outcomes, name, dtype):
    (outcome,) = outcomes(spec(name), checks=("backward",), dtypes=(dtype,)).values()
    assert outcome.outcome == "failed", outcome.message


@BOTH
def test_one_that_is_infinite_a_step_away_alone_does_not_pass(outcomes, dtype):
    (outcome,) = outcomes(spec("infinite_on_one_side"), checks=("backward",), dtypes=(dtype,)).values()
    assert outcome.outcome in ("failed", "inconclusive")


@BOTH
def test_where_nothing_is_finite_nothing_is_tested(outcomes, dtype):
    (outcome,) = outcomes(spec("nowhere_finite"), checks=("backward",), dtypes=(dtype,)).values()
    assert outcome.outcome == "error"
    assert "no output is finite anywhere" in outcome.message


@BOTH
def test_without_the_map_the_message_names_it(outcomes, dtype):
    (outcome,) = outcomes(spec("masked", ""), checks=("backward",), dtypes=(dtype,)).values()
    assert outcome.outcome == "failed"
    assert 'write outputs = { apply = "finite" }' in outcome.message


@BOTH
def test_one_tensor_may_be_both_sides_of_a_pole(verdict_of, dtype):
    samples = "samples = [{ args = [{ shape = [2, 3] }, { shape = [2, 3] }] }]"
    assert verdict_of("operators.infinite.decibels", "aliasing", dtype, samples=samples).outcome == "passed"
    wrong = verdict_of("operators.infinite.decibels_wrong_for_one", "aliasing", dtype, samples=samples)
    assert wrong.reason.startswith("aliasing: the values for one tensor as both x and y differ")
