"""Derived samples where the check `derived` has no case: without a derivative, or in half precision only."""

from __future__ import annotations

import pytest

NO_DERIVATIVE = "supports = { backward = false, forward_ad = false }"
ONE = "samples = [{ args = [{ shape = [2, 3] }] }]"
HALF = (
    "dtypes = ['float16', 'bfloat16']\nreference = { target = 'torch.mul', differentiable = true }\n"
    "samples = [{ args = [{ shape = [2, 3] }, { shape = [3] }] }]\nsupports = { forward_ad = false }"
)


def outcome_of(outcomes, name, check, keys, dtype, **overrides):
    text = f'[[operator]]\nname = "operators.inference.{name}"\n{keys}\n'
    (outcome,) = outcomes(text, checks=(check,), dtypes=(dtype,), overrides=overrides or None).values()
    return outcome


def sample_in(outcome):
    return outcome.message.split("args = ")[2].splitlines()[0]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_the_values_of_an_operator_without_a_derivative_are_compared_at_derived_samples(outcomes, dtype):
    keys = f"{NO_DERIVATIVE}\nreference = 'torch.sgn'\n{ONE}"
    right = outcome_of(outcomes, "signs", "reference", keys, dtype)
    assert right.outcome == "passed", right.message
    assert right.fields["derived"]["hold"] > 5
    wrong = outcome_of(outcomes, "signs_of_blocks", "reference", keys, dtype)
    assert wrong.outcome == "failed"
    assert wrong.reason == "derived: sizes 2 -> 17, 3 -> 18: reference: output 0 is not that of torch.sgn"
    assert "passes with size 4, fails with size 5" in wrong.message
    assert sample_in(wrong) == "[{ shape = [1, 5] }] }"
    assert f"{{ args = [{{ shape = [2, 3] }}] }}\n  realized: {dtype}[2, 3]" in wrong.message  # the written sample


def test_without_derived_samples_only_written_ones_are_compared(outcomes):
    keys = f"{NO_DERIVATIVE}\nreference = 'torch.sgn'\n{ONE}"
    outcome = outcome_of(outcomes, "signs_of_blocks", "reference", keys, "float64", derive="none")
    assert outcome.outcome == "passed", outcome.message
    assert not outcome.fields.get("derived")


def test_with_a_derivative_it_is_the_check_derived_that_compares_values(outcomes):
    text = f'[[operator]]\nname = "operators.varied.sine_of_blocks"\nreference = "numpy.sin"\n{ONE}'
    each = outcomes(text, checks=("reference", "derived"), dtypes=("float64",)).values()
    assert {one.check: one.outcome for one in each} == {"reference": "passed", "derived": "failed"}


def test_an_expected_failure_is_not_looked_for_at_derived_samples(outcomes):
    known = "expect = [{ when = { check = 'reference' }, outcome = 'flaky', reason = 'tails' }]"
    keys = f"{NO_DERIVATIVE}\nreference = 'torch.sgn'\n{ONE}\n{known}"
    assert not outcome_of(outcomes, "signs_of_blocks", "reference", keys, "float64").fields.get("derived")


@pytest.mark.parametrize("derive", ["standard", "thorough"])
def test_an_operator_that_broadcasts_nothing_is_not_compared_where_its_reference_broadcasts(outcomes, derive):
    samples = "samples = [{ args = [{ shape = [2, 3] }, { shape = [2, 3] }] }]"
    keys = f"{NO_DERIVATIVE}\nreference = {{ target = 'torch.gt', differentiable = true }}\n{samples}"
    outcome = outcome_of(outcomes, "is_greater", "reference", keys, "float64", derive=derive)
    assert outcome.outcome == "passed", outcome.message
    assert outcome.fields["derived"]["inconclusive"] > 0
    assert outcome.fields["derived"]["hold"] > 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_kernels_of_half_precision_only_are_tested_at_derived_samples(outcomes, dtype):
    right = outcome_of(outcomes, "scale", "low_precision_grad", HALF, dtype)
    assert right.outcome == "passed", right.message
    assert right.fields["derived"]["hold"] > 5
    tail = outcome_of(outcomes, "scale_of_blocks", "low_precision_grad", HALF, dtype)
    assert tail.outcome == "failed"
    assert "passes with size 4, fails with size 5" in tail.message
    rows = outcome_of(outcomes, "scale_of_eight_rows", "low_precision_grad", HALF, dtype)
    assert rows.outcome == "failed"
    assert "gradient of w" in rows.reason


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_fake_tensors_of_an_operator_without_a_derivative_are_right_at_other_sizes(outcomes, dtype):
    keys = f"{NO_DERIVATIVE}\nregistered = true\ndtypes = ['floating', 'complex']\n{ONE}"
    right, wrong = (
        outcome_of(outcomes, name, "registration", keys, "float64") for name in ("rounded", "rounded_in_blocks")
    )
    assert right.outcome == "passed", right.message  # also under AOT dispatch, which needs no formula for backward here
    assert right.fields["derived"]["hold"] > 5
    assert wrong.outcome == "failed"
    assert "registration: test_faketensor failed" in wrong.reason
    assert sample_in(wrong) == "[{ shape = [1, 5] }] }"


@pytest.mark.parametrize("dtypes", ["'floating'", "['float16', 'bfloat16']"])
def test_fake_tensors_are_right_in_each_dtype_of_forward(outcomes, dtypes):
    keys = f"{NO_DERIVATIVE}\nregistered = true\ndtypes = {dtypes}\n{ONE}"

    def outcome(name):
        text = f'[[operator]]\nname = "operators.inference.{name}"\n{keys}\n'
        (only,) = outcomes(text, checks=("registration",)).values()
        return only

    assert outcome("rounded").outcome == "passed"
    assert outcome("rounded_to_float32").outcome == "failed"
    assert outcome("rounded_to_float32").reason.endswith("test_faketensor failed")


def test_a_dtype_that_an_operator_refuses_is_no_fault_of_its_registration(outcomes):
    keys = f"{NO_DERIVATIVE}\nregistered = true\ndtypes = ['floating', 'complex']\n{ONE}"
    text = f'[[operator]]\nname = "operators.inference.rounded"\n{keys}\n'  # torch.round takes no complex numbers
    each = outcomes(text, checks=("registration", "dtypes"))
    failed = {(one.check, one.dtype) for one in each.values() if one.outcome != "passed"}
    assert failed == {("dtypes", "complex64"), ("dtypes", "complex128")}


def test_an_operator_without_a_derivative_gets_tensors_that_do_not_require_grad(outcomes):
    keys = "supports = { backward = false, forward_ad = false, vmap = false, out = false }\nreference = 'numpy.sign'"
    text = f'[[operator]]\nname = "operators.inference.signs_by_numpy"\n{keys}\ndtypes = ["float64", "float32"]\n{ONE}'
    each = outcomes(text)
    assert {one.check for one in each.values()} >= {
        "purity",
        "context",
        "unsupported",
        "variants",
        "reference",
        "dtypes",
    }
    assert {one.outcome for one in each.values()} == {"passed"}, [one.message for one in each.values()]
    (values,) = (one for one in each.values() if one.check == "reference")
    assert values.fields["derived"]["hold"] > 5


def test_without_a_derivative_other_sizes_are_compared_if_nothing_can_be_broadcast(outcomes):
    keys = (
        f"{NO_DERIVATIVE}\nreference = {{ target = 'operators.inference.causal', differentiable = true }}\n"
        "samples = [{ args = [{ shape = [3, 3] }] }]"
    )
    right = outcome_of(outcomes, "masked", "reference", keys, "float64")
    assert right.outcome == "passed", right.message
    wrong = outcome_of(outcomes, "masked_as_square", "reference", keys, "float64")
    assert wrong.outcome == "failed"
    assert wrong.reason.startswith("derived: size 3 -> 4 in dim -1")


def test_a_flag_is_also_varied_where_numbers_are_special(outcomes):
    keys = f"{NO_DERIVATIVE}\nreference = {{ target = 'operators.inference.bucket', differentiable = true }}\n{ONE}"
    assert outcome_of(outcomes, "bucket", "reference", keys, "float64").outcome == "passed"
    wrong = outcome_of(outcomes, "bucket_of_one_side", "reference", keys, "float64")
    assert wrong.outcome == "failed"
    assert wrong.reason.startswith("derived: right = true, elements 0, 12, -13")


def test_of_positions_of_equal_numbers_the_message_says_how_to_leave_them_out(outcomes):
    keys = f"{NO_DERIVATIVE}\nreference = {{ target = 'torch.argmax', kwargs = {{ dim = -1 }} }}\n{ONE}"
    outcome = outcome_of(outcomes, "positions_of_largest", "reference", keys, "float64")
    assert outcome.outcome == "failed"
    assert 'write vary = ["-value"]' in outcome.message
    without = keys.replace("{ args =", "{ vary = ['size', 'layout'], args =")
    assert outcome_of(outcomes, "positions_of_largest", "reference", without, "float64").outcome == "passed"


def test_the_call_that_tries_a_derived_sample_does_not_hide_a_write_to_its_input(outcomes):
    keys = f"{NO_DERIVATIVE}\nregistered = true\n{ONE}"
    outcome = outcome_of(outcomes, "rounded_in_place", "registration", keys, "float64")
    assert "test_schema failed" in outcome.reason


def test_a_kernel_is_not_wrong_if_it_is_more_exact_than_its_reference_in_half_precision(outcomes):
    keys = (
        "reference = { target = 'operators.inference.eager_softmax_of_product', differentiable = true }\n"
        f"dtypes = 'half'\n{NO_DERIVATIVE}\nsamples = [{{ args = [{{ shape = [3, 4] }}, {{ shape = [4, 5] }}] }}]"
    )
    right = outcome_of(outcomes, "softmax_of_product", "reference", keys, "bfloat16")
    assert right.outcome == "passed", right.message
    wrong = outcome_of(outcomes, "softmax_of_tanh", "reference", keys, "bfloat16")
    assert wrong.outcome == "failed"


def test_a_reference_in_numpy_gets_numbers_of_bfloat16_in_float32(outcomes):
    keys = f"dtypes = ['bfloat16']\nreference = 'numpy.round'\n{NO_DERIVATIVE}\n{ONE}"
    outcome = outcome_of(outcomes, "whole", "reference", keys, "bfloat16")
    assert outcome.outcome == "passed", outcome.message


def test_in_half_precision_cotangents_of_derived_samples_lie_in_memory_as_the_inputs_do(outcomes):
    wrong = outcome_of(outcomes, "scale_by_memory", "low_precision_grad", HALF, "bfloat16")
    assert wrong.outcome == "failed"
    assert wrong.reason.startswith("derived: memory noncontiguous: low_precision_grad")
    assert "cotangents in the same memory as the inputs, at: " in wrong.message


def test_positions_of_a_kernel_of_half_precision_are_not_rounded(outcomes):
    keys = f"{NO_DERIVATIVE}\nreference = {{ target = 'operators.inference.best', differentiable = true }}\n{ONE}"
    right, wrong = (
        outcome_of(outcomes, name, "reference", f"dtypes = ['bfloat16']\n{keys}", "bfloat16")
        for name in ("best", "best_but_one")
    )
    assert right.outcome == "passed", right.message
    assert wrong.outcome == "failed"
    assert wrong.reason == "derived: size 3 -> 1031: reference: output 0 is not that of operators.inference.best"


def test_fake_tensors_are_tested_in_a_dtype_without_a_derivative_that_refuses_others(outcomes):
    keys = f"registered = true\ndtypes = {{ forward = ['float64', 'bfloat16'], backward = ['float64'] }}\n{ONE}"
    text = f'[[operator]]\nname = "operators.inference.plain_in_half"\n{keys}\n'
    (outcome,) = outcomes(text, checks=("registration",)).values()
    assert outcome.reason == "registration: in bfloat16: test_faketensor failed", outcome.message
