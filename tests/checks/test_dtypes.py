"""The dtypes that a spec claims are exactly those that work."""

import pytest

SAMPLES = "samples = [{ args = [{ shape = [2, 3], low = 0.5 }] }]"


def statuses(outcomes, name, keys):
    found = outcomes(f'[[operator]]\nname = "{name}"\n{keys}\n{SAMPLES}\n', checks=("dtypes",))
    return {outcome.dtype: outcome for outcome in found.values()}


def test_exact_claims_pass_for_every_standard_dtype(outcomes):
    found = statuses(outcomes, "torch.sin", 'dtypes = { forward = ["all"], backward = ["floating", "complex"] }')
    assert len(found) == 12
    assert {outcome.outcome for outcome in found.values()} == {"passed"}
    assert not any(outcome.fields for outcome in found.values())  # nor is there a remark


@pytest.mark.parametrize("missing", ["int64", "float16", "complex128"])
def test_a_dtype_that_works_but_is_not_claimed_fails(outcomes, missing):
    keys = f'dtypes = {{ forward = ["all", "-{missing}"] }}'
    found = statuses(outcomes, "torch.sin", keys)
    assert found[missing].outcome == "failed"
    assert f'add "{missing}" to dtypes.forward' in found[missing].message
    assert {name for name, outcome in found.items() if outcome.outcome != "passed"} == {missing}


@pytest.mark.parametrize("extra", ["bool", "complex64"])
def test_a_claimed_dtype_that_is_refused_fails(outcomes, extra):
    # torch.floor knows neither complex numbers nor booleans.
    found = statuses(outcomes, "torch.floor", f'dtypes = {{ forward = ["integral", "floating", "{extra}"] }}')
    assert found[extra].outcome == "failed"
    assert f"forward is claimed for {extra}, but the operator refuses the sample" in found[extra].reason
    assert {name for name, outcome in found.items() if outcome.outcome != "passed"} == {extra}


def test_a_backward_that_works_but_is_not_claimed_fails(outcomes):
    found = statuses(outcomes, "torch.sin", 'dtypes = { forward = ["all"], backward = ["floating"] }')
    assert {name for name, outcome in found.items() if outcome.outcome == "failed"} == {"complex64", "complex128"}


def test_where_a_spec_says_nothing_about_dtypes_only_the_default_is_tested(outcomes):
    assert set(statuses(outcomes, "torch.sin", "")) == {
        "float16", "bfloat16", "float32", "float64", "complex64", "complex128"
    }  # fmt: skip


def test_without_a_claim_about_backward_forward_is_tried_with_inputs_that_do_not_require_grad(outcomes):
    claims = (
        'dtypes = { forward = ["floating", "complex", "integral", "bool"], '
        'backward = ["floating", "complex", "-float32"] }'
    )
    found = statuses(outcomes, "operators.partial.no_leaves_in_single", claims)
    assert found["float32"].outcome == "passed", found["float32"].message
    assert found["float64"].outcome == "passed"


def test_outputs_that_do_not_require_grad_are_passed_over(outcomes):
    keys = 'dtypes = { forward = ["all"], backward = ["floating", "complex"] }'
    found = statuses(outcomes, "operators.partial.value_and_copy", keys)
    assert found["float64"].outcome == "passed", found["float64"].message
