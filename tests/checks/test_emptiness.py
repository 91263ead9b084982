"""A check in which nothing was compared does not pass."""

from __future__ import annotations

import pytest

from opcheck.checks import PerSample
from opcheck.checks.verdict import HOLDS, fails, untested

DERIVATIVES = (
    "backward", "forward_ad", "batched_grad", "batched_forward_grad", "undefined_grad", "grad_dtypes",
    "nondeterminism", "rev_over_rev", "fwd_over_rev",
)  # fmt: skip
ORDERS = ("rev_over_fwd", "fwd_over_fwd", "scalarized_second_order", "rev_over_rev_over_rev")
NOTHING = "no sample tests the claim"
EMPTY = "samples = [{ args = [{ shape = [0, 2] }] }]"


def keys_for(check):
    return f'orders = ["{check}"]' if check in ORDERS else ""


@pytest.mark.parametrize("check", [*DERIVATIVES, *ORDERS])
def test_integer_outputs_have_no_derivative_that_could_hold(verdict_of, check):
    outcome = verdict_of("operators.right.integers_only", check, keys=keys_for(check))
    assert outcome.outcome == "blocked"
    assert outcome.reason.startswith(f"{check}: {NOTHING}")
    assert "no output is of a floating or complex dtype" in outcome.reason


FORWARD = ("backward", "forward_ad", "batched_forward_grad")
"""With something to compare where there is no backward pass."""


@pytest.mark.parametrize("check", [check for check in (*DERIVATIVES, *ORDERS) if check not in FORWARD])
def test_without_a_backward_pass_nothing_holds_of_one(verdict_of, check):
    outcome = verdict_of("operators.results.without_grad", check, keys=keys_for(check))
    assert (outcome.outcome, outcome.fields["blocked_by"]) == ("blocked", "dtypes")
    assert outcome.reason.startswith(f"{check}: {NOTHING}")
    assert "no output requires grad: there is no backward pass" in outcome.reason


@pytest.mark.parametrize("check", FORWARD)
def test_a_derivative_of_zero_is_compared_with_the_numerical_one(verdict_of, check):
    assert verdict_of("operators.results.without_grad", check).outcome == "passed"


@pytest.mark.parametrize("check", [*DERIVATIVES, *ORDERS, "vmap", "variants", "reference", "dtypes"])
def test_empty_samples_alone_show_nothing(verdict_of, check):
    keys = f'reference = "numpy.square"\nsupports.out = false\n{keys_for(check)}'
    outcome = verdict_of("operators.right.square", check, keys=keys, samples=EMPTY)
    assert outcome.outcome == "error"
    assert outcome.reason.startswith(f"{check}: {NOTHING}")
    assert "inputs or outputs are empty" in outcome.reason


@pytest.mark.parametrize("check", DERIVATIVES)
def test_an_empty_sample_beside_others_is_tested_as_far_as_it_goes(verdict_of, check):
    both = f"{EMPTY[:-1]}, {{ args = [{{ shape = [2] }}] }}]"
    assert verdict_of("operators.right.square", check, samples=both).outcome == "passed"


def test_a_backward_pass_of_a_dtype_that_no_sample_has_is_not_claimed_in_vain(verdict_of):
    outcome = verdict_of("operators.right.integers_only", "dtypes", "float16", 'dtypes = { forward = ["floating"] }')
    assert outcome.outcome == "error"
    assert outcome.reason.startswith(f"dtypes: {NOTHING}")
    assert "no output requires grad" in outcome.reason


@pytest.mark.parametrize("feature", ["backward", "forward_ad", "second_order", "batched_grad", "vmap"])
def test_a_disclaimer_that_no_sample_can_show_is_not_verified(verdict_of, feature):
    keys = f"supports = {{ {feature} = false }}"
    outcome = verdict_of("operators.right.first_order_only", "unsupported", keys=keys, samples=EMPTY)
    assert (outcome.outcome, outcome.reason) == ("error", f"unsupported: no sample shows whether {feature} is refused")


def test_a_disclaimer_about_another_variant_leaves_the_function_with_the_reason(verdict_of):
    keys = 'supports = { inplace_backward = false }\nvariants = ["inplace"]'
    outcome = verdict_of("torch.sin", "unsupported", keys=keys)
    assert (outcome.outcome, outcome.reason) == ("skipped", "what the spec disclaims concerns other variants")


def test_an_inplace_variant_that_fits_no_sample_shows_nothing(outcomes):
    samples = "samples = [{ args = [{ shape = [] }, { shape = [2] }] }]"
    text = f'[[operator]]\nname = "torch.add"\nvariants = ["inplace"]\n{samples}\n'
    found = outcomes(text, checks=("backward",), dtypes=("float64",))
    outcome = found["torch.add[inplace]::backward[cpu-float64]"]
    assert outcome.outcome == "error"
    assert outcome.reason.startswith(f"backward: {NOTHING}")
    assert "the first argument cannot hold the result" in outcome.reason


def test_a_selection_of_no_output_is_refused(outcomes):
    text = '[[operator]]\nname = "torch.sin"\noutputs = { select = [] }\nsamples = [{ use = "unary" }]\n'
    with pytest.raises(Exception, match="select is empty"):
        outcomes(text)


SINE = '[[operator]]\nname = "torch.sin"\nsamples = [{ args = [{ shape = [2] }] }]'


class TestJudgementsOfPlugins:
    def test_a_judgement_that_never_applies_is_an_error(self, outcomes, monkeypatch):
        monkeypatch.setattr("opcheck.checks.jacobian.compare.check", PerSample(lambda subject: None))
        found = outcomes(
            '[[operator]]\nname = "torch.sin"\nsamples = [{ args = [{ shape = [2] }] }]', checks=("backward",)
        )
        why = "the check returned None, which means that its claim does not apply"
        assert {(each.outcome, each.reason) for each in found.values()} == {("error", f"backward: {NOTHING}: {why}")}

    def test_a_judgement_that_holds_passes(self, outcomes, monkeypatch):
        monkeypatch.setattr("opcheck.checks.jacobian.compare.check", PerSample(lambda subject: HOLDS))
        found = outcomes(
            '[[operator]]\nname = "torch.sin"\nsamples = [{ args = [{ shape = [2] }] }]', checks=("backward",)
        )
        assert {each.outcome for each in found.values()} == {"passed"}

    def test_a_verdict_that_tests_nothing_hides_no_failure_after_it(self, outcomes, monkeypatch):
        verdicts = untested("nothing to compare here"), fails("backward: wrong there")
        monkeypatch.setattr("opcheck.checks.jacobian.compare.check", PerSample(lambda subject: iter(verdicts)))
        found = outcomes(SINE, checks=("backward",), dtypes=("float64",))
        assert {(each.outcome, each.reason) for each in found.values()} == {("failed", "backward: wrong there")}
