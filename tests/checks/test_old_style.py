"""Functions without `setup_context`: right ones are accused of nothing, wrong ones of what is wrong with them."""

from __future__ import annotations

import pytest
from operators.old_style import RIGHT, WRONG

ALONE = "vmap = false, batched_forward_grad = false"
"""What torch refuses to do with any such function."""


def spec(name, arguments="{ shape = [3], low = 0.5 }", claims="", keys=""):
    claims = ", ".join(filter(None, (claims, ALONE)))
    return f"""
[[operator]]
name     = "operators.old_style.{name}.apply"
supports = {{ {claims} }}
samples  = [{{ args = [{arguments}] }}]
{keys}
"""


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_one_is_accused_of_nothing(outcomes, name):
    found = outcomes(spec(name, *RIGHT[name]), dtypes=("float64", "complex128"))
    bad = {id: outcome.reason for id, outcome in found.items() if outcome.outcome not in ("passed", "skipped")}
    assert bad == {}
    assert sum(outcome.outcome == "passed" for outcome in found.values()) > 20


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_one_fails_under_its_check(outcomes, name, dtype):
    found = outcomes(spec(name), dtypes=(dtype,))
    failed = {outcome.check for outcome in found.values() if outcome.outcome == "failed"}
    assert failed == {WRONG[name]}


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_what_cannot_be_asked_is_skipped_and_said(outcomes, dtype):
    found = outcomes(spec("SquareWithTangent"), dtypes=(dtype,))
    reasons = {outcome.check: outcome.reason for outcome in found.values() if outcome.outcome == "skipped"}
    assert set(reasons) == {"fwd_over_fwd"}
    assert reasons["fwd_over_fwd"].startswith("torch cannot take the jvp of the jvp of an autograd.Function")


def test_out_is_tested_where_the_spec_claims_it(outcomes):
    text = spec("Square", claims="out = true, forward_ad = false")
    (outcome,) = outcomes(text, checks=("variants",), dtypes=("float64",)).values()
    assert outcome.outcome == "failed"
    assert outcome.reason.startswith("variants: out= raised")


class TestContiguousMemory:
    """A kernel may read the memory of its cotangent where nothing before it in a graph negates lazily."""

    def outcome(self, outcomes, dtypes, dtype):
        text = spec("ReadsMemory", claims="forward_ad = false, second_order = false", keys=f"dtypes = [{dtypes}]")
        (outcome,) = outcomes(text, checks=("linearity",), dtypes=(dtype,)).values()
        return outcome

    def test_one_that_is_real_alone_is_not_accused(self, outcomes):
        assert self.outcome(outcomes, '"float64"', "float64").outcome == "passed"

    @pytest.mark.parametrize("dtype", ["float64", "complex128"])
    def test_one_that_claims_complex_numbers_is(self, outcomes, dtype):
        outcome = self.outcome(outcomes, '"float64", "complex128"', dtype)
        assert outcome.outcome == "failed"
        assert "lazily" in outcome.reason
