"""Outputs in half precision: their derivatives are told by differences at a step that is stated, and no other."""

from __future__ import annotations

import pytest
import torch

from opcheck.derivatives import default_numbers
from opcheck.samples.layouts import equal

BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])
STEP = "tolerance = { eps = 1 }\nsupports = { out = false }"
JACOBIANS = ("backward", "forward_ad", "rev_over_rev", "fwd_over_rev")


def spec(name, keys=STEP):
    path = name if "." in name else f"operators.coarse.{name}"
    return f'[[operator]]\nname = "{path}"\n{keys}\nsamples = [{{ args = [{{ shape = [2, 3] }}] }}]\n'


@BOTH
@pytest.mark.parametrize("name", ["in_half", "in_half_right"])
def test_a_right_cast_passes(outcomes, name, dtype):
    found = outcomes(spec(name), dtypes=(dtype,))
    assert {id: one.message for id, one in found.items() if one.outcome not in ("passed", "skipped")} == {}
    assert set(JACOBIANS) <= {one.check for one in found.values()}


@BOTH
@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("in_half_doubled", "backward"),
        ("in_half_off", "backward"),
        ("in_half_clipped", "linearity"),
        ("in_half_forward", "forward_ad"),
    ],
)
def test_a_wrong_one_is_caught(outcomes, name, check, dtype):
    (outcome,) = outcomes(spec(name), checks=(check,), dtypes=(dtype,)).values()
    assert outcome.outcome == "failed", outcome.message


@BOTH
@pytest.mark.parametrize("keys", ["", "tolerance = { eps = 1e-3 }"])
def test_without_a_step_that_the_output_resolves_nothing_is_tested(outcomes, keys, dtype):
    (outcome,) = outcomes(spec("in_half", keys), checks=("backward",), dtypes=(dtype,)).values()
    assert outcome.outcome == "error"
    assert "too coarse for finite differences unless the step is at least 0.04: set tolerance.eps" in outcome.message


@BOTH
@pytest.mark.parametrize("name", ["square_in_single", "gate_in_single"])
def test_what_is_computed_in_single_precision_is_not_called_wrong_in_double(outcomes, name, dtype):
    (outcome,) = outcomes(spec(name, ""), checks=("backward",), dtypes=(dtype,)).values()
    assert outcome.outcome == "inconclusive"
    assert "at least some values have only float32 precision, " in outcome.reason
    assert f"take {dtype} out of dtypes.forward" in outcome.message
    assert outcome.fields["remedy"] == {"key": "dtypes.forward", "write": f"-{dtype}"}


@BOTH
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_what_is_rounded_to_half_precision_is_not_called_wrong_in_double(outcomes, half, dtype):
    (outcome,) = outcomes(spec(f"stored_in_{half}", ""), checks=("backward",), dtypes=(dtype,)).values()
    assert outcome.outcome == "inconclusive"
    assert f"at least some values have only {half} precision, " in outcome.reason


@BOTH
def test_a_derived_sample_is_not_judged_where_the_written_one_cannot_be(outcomes, dtype):
    found = {
        one.check: one
        for one in outcomes(spec("normalized_in_single", "supports = { out = false }"), dtypes=(dtype,)).values()
    }
    assert found["backward"].outcome == "inconclusive"
    assert found["derived"].outcome in ("blocked", "passed")


@BOTH
def test_what_is_rounded_to_a_grid_on_purpose_is_not_called_coarse(outcomes, dtype):
    (outcome,) = outcomes(spec("quarters", ""), checks=("backward",), dtypes=(dtype,)).values()
    assert outcome.outcome == "failed"
    assert "precision" not in outcome.message


def test_a_second_derivative_of_a_coarse_gradient_does_not_blame_the_dtype(outcomes):
    (outcome,) = outcomes(spec("gradient_in_single", ""), checks=("rev_over_rev",), dtypes=("float64",)).values()
    assert outcome.outcome == "inconclusive"
    assert "let the first derivative compute in float64, or state tolerance.eps" in outcome.message
    assert "remedy" not in outcome.fields


def test_terms_that_cancel_have_the_rounding_of_what_they_were(outcomes):
    text = spec("beyond_one_in_single", "").replace("shape = [2, 3]", "shape = [2, 3], low = 1, high = 1.001")
    (outcome,) = outcomes(text, checks=("backward",), dtypes=("float64",)).values()
    assert outcome.outcome == "inconclusive"
    assert "at least some values have only float32 precision, " in outcome.reason


def test_a_step_that_no_value_of_single_precision_shows_is_no_zero_derivative(outcomes):
    (outcome,) = outcomes(spec("far_in_single", ""), checks=("backward",), dtypes=("float64",)).values()
    assert outcome.outcome == "inconclusive"
    assert "at least some values have only float32 precision, " in outcome.reason


@BOTH
@pytest.mark.parametrize("name", ["square_in_single_wrong", "gate_in_single_wrong"])
def test_a_derivative_that_no_rounding_explains_is_wrong_in_any_precision(outcomes, name, dtype):
    (outcome,) = outcomes(spec(name, ""), checks=("backward",), dtypes=(dtype,)).values()
    assert outcome.outcome == "failed"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("square_in_single", "passed"),
        ("square_in_single_wrong", "failed"),
        ("gate_in_single", "passed"),
        ("gate_in_single_wrong", "failed"),
    ],
)
def test_in_single_precision_it_has_its_verdict(outcomes, name, expected):
    text = spec(name, 'dtypes = ["float32"]')
    (outcome,) = outcomes(text, checks=("backward",), dtypes=("float32",)).values()
    assert outcome.outcome == expected


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex32])
def test_tolerances_tell_a_derivative_from_another_one(dtype):
    assert default_numbers(dtype) is None
    assert default_numbers(dtype, 0.01) is None
    numbers = default_numbers(dtype, 1.0)
    assert numbers is not None
    assert numbers.atol + numbers.rtol < 0.1
    assert default_numbers(torch.int64, 1.0) is None


@pytest.mark.parametrize(("name", "expected"), [("torch.mul", "passed"), ("operators.coarse.clipped", "failed")])
def test_gradients_of_a_coarser_leaf_are_linear_up_to_its_rounding(verdict_of, name, expected):
    samples = 'samples = [{ args = [{ shape = [3] }, { shape = [3], dtype = "float32", grad = true }] }]'
    assert verdict_of(name, "linearity", samples=samples).outcome == expected


def test_complex_numbers_in_half_precision_are_compared():
    x = torch.tensor([1 + 2j, 3j]).chalf()
    assert equal(x, x.clone())
    assert not equal(x, x.conj())
    assert not equal(x, x[:1])


SINGLE = {"float64": "float32", "complex128": "complex64"}


def with_single(name, dtype):
    """Return a spec of an operator of two tensors, the second in single precision."""
    weight = f'{{ shape = [3], dtype = "{SINGLE[dtype]}", grad = true, low = 5, high = 9 }}'
    samples = f"[{{ args = [{{ shape = [2, 3], low = 5, high = 9 }}, {weight}] }}]"
    return f'[[operator]]\nname = "{name}"\nsamples = {samples}\n'


@BOTH
def test_a_right_derivative_by_a_leaf_in_single_precision_passes(outcomes, dtype):
    found = outcomes(with_single("torch.mul", dtype), checks=(*JACOBIANS, "derived"), dtypes=(dtype,))
    assert {one.outcome for one in found.values()} == {"passed"}, [one.message for one in found.values()]


@BOTH
def test_a_wrong_derivative_by_a_leaf_in_single_precision_is_caught_at_each_sample(outcomes, dtype):
    text = with_single("operators.coarse.weighed_too_much", dtype)
    found = outcomes(text, checks=("backward", "derived"), dtypes=(dtype,))
    assert {one.check: one.outcome for one in found.values()} == {"backward": "failed", "derived": "blocked"}


@BOTH
def test_autocast_may_convert_what_is_in_single_precision(outcomes, dtype):
    (outcome,) = outcomes(
        with_single("operators.coarse.weighed_sum", dtype), checks=("context",), dtypes=(dtype,)
    ).values()
    assert outcome.outcome == "passed", outcome.message
