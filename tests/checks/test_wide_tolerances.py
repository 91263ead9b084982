"""Tolerances wider than the defaults are counted; one that a gradient of the wrong sign would pass is a mistake."""

from __future__ import annotations

import pytest

BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])
CHECKS = ["backward", "rev_over_rev"]


def outcome_of(verdict_of, check, dtype, tolerance, operator="operators.right.square"):
    keys = f"tolerance = {tolerance}\nsupports = {{ forward_ad = false }}"
    return verdict_of(operator, check, dtype, keys)


@BOTH
@pytest.mark.parametrize(
    "tolerance", ["{ atol = 100.0 }", "{ rtol = 2.0 }", "{ check = { backward = { atol = 100.0 } } }"]
)
def test_one_that_excuses_the_wrong_sign_is_an_error_at_its_place(verdict_of, tolerance, dtype):
    for operator in ("operators.right.square", "operators.faulty.wrong_sign"):
        outcome = outcome_of(verdict_of, "backward", dtype, tolerance, operator)
        assert outcome.outcome == "error"
        assert outcome.reason.startswith("backward: a gradient of the wrong sign would pass: ")
        assert "spec.toml:3:13: atol = " in outcome.reason


@BOTH
@pytest.mark.parametrize("check", CHECKS)
def test_one_that_is_wider_and_tells_signs_apart_is_recorded(verdict_of, check, dtype):
    outcome = outcome_of(verdict_of, check, dtype, "{ atol = 1e-3, rtol = 0.01 }")
    assert outcome.outcome == "passed"
    assert outcome.fields["tolerance"] == {"atol": 1e-3, "rtol": 0.01}


@BOTH
@pytest.mark.parametrize("tolerance", ["{}", "{ atol = 1e-6 }", "{ eps = 1e-5 }"])
def test_defaults_and_narrower_ones_are_not_recorded(verdict_of, tolerance, dtype):
    outcome = outcome_of(verdict_of, "backward", dtype, tolerance)
    assert outcome.outcome == "passed"
    assert "tolerance" not in outcome.fields


@BOTH
def test_a_jacobian_of_zeros_has_no_sign(verdict_of, dtype):
    outcome = outcome_of(verdict_of, "backward", dtype, "{ atol = 100.0 }", "torch.zeros_like")
    assert "wrong sign" not in outcome.reason


@pytest.mark.parametrize(
    ("stated", "wide"),
    [
        ("{ atol = 0.1 }", {"atol": 0.1}),
        ("{ atol = 1e-9, rtol = 1e-6 }", {"rtol": 1e-6}),
        ("{ atol = 1e-9, rtol = 1e-9 }", None),
    ],
)
def test_those_for_values_are_recorded_where_they_are_wider(verdict_of, stated, wide):
    keys = f'reference = "numpy.sin"\ntolerance = {{ check = {{ reference = {stated} }} }}'
    outcome = verdict_of("torch.sin", "reference", keys=keys)
    assert outcome.outcome == "passed"
    assert outcome.fields.get("tolerance") == wide
