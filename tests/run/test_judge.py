"""From verdicts to an outcome, with and without expectations."""

from __future__ import annotations

import pytest

from opcheck.checks.verdict import HOLDS, Verdict, cannot, fails
from opcheck.run.judge import judge, nothing_to_run, samples_to_run


def on(name, verdict):
    """Return a verdict on a sample."""
    return Verdict(**{**vars(verdict), "sample": name})


GOOD = [on(name, HOLDS) for name in ("a", "b", "g[x=1]", "g[x=2]")]


def verdicts(**others):
    """Return verdicts that hold but on some samples."""
    return [on(verdict.sample, others.get(verdict.sample[0], verdict)) for verdict in GOOD]


WRONG = fails("the slope is wrong", "by a lot", row=1)
REFUSED = cannot("the operator refuses the sample")


class TestWithoutExpectations:
    def test_all_that_holds_has_passed(self, case_of):
        outcome = judge(case_of(), GOOD)
        assert (outcome.outcome, outcome.reason, outcome.message, outcome.fields) == ("passed", "", "", {})
        assert outcome.id == "operators.right.square::backward[cpu-float64]"

    def test_one_failing_sample_fails_the_case(self, case_of):
        outcome = judge(case_of(), verdicts(b=WRONG), "opcheck run X")
        assert (outcome.outcome, outcome.reason) == ("failed", "the slope is wrong")
        assert outcome.fields == {"sample": "b", "row": 1}
        assert outcome.message.splitlines() == [
            "operators.right.square::backward[cpu-float64]: 1 of 4 samples failed", "",
            "sample b ()", "  the slope is wrong", "  by a lot", "", "run just this: opcheck run X",
        ]  # fmt: skip

    def test_what_could_not_be_tested_is_an_error(self, case_of):
        assert judge(case_of(), verdicts(b=REFUSED)).outcome == "error"

    def test_a_failure_weighs_more_than_an_error(self, case_of):
        outcome = judge(case_of(), verdicts(a=REFUSED, b=WRONG))
        assert (outcome.outcome, outcome.reason, outcome.fields["sample"]) == ("failed", "the slope is wrong", "b")

    def test_a_verdict_on_the_case_as_a_whole_has_no_sample(self, case_of):
        outcome = judge(case_of(), [WRONG])
        assert outcome.message.splitlines() == [
            "operators.right.square::backward[cpu-float64]: failed", "", "  the slope is wrong", "  by a lot",
        ]  # fmt: skip

    def test_of_many_failures_three_are_told_and_the_others_named(self, case_of):
        message = judge(case_of(), verdicts(a=WRONG, b=WRONG, g=WRONG)).message
        assert message.count("the slope is wrong") == 3
        assert message.splitlines()[-1] == "also: g[x=2]"


class TestExpectationsOfTheCase:
    def test_a_failure_that_was_expected_does_not_count(self, case_of):
        outcome = judge(case_of((None, "fail", "known")), verdicts(b=WRONG))
        assert (outcome.outcome, outcome.reason) == ("xfailed", "known")

    def test_a_pass_that_was_not_expected_counts(self, case_of):
        outcome = judge(case_of((None, "fail", "known")), GOOD)
        assert (outcome.outcome, outcome.reason) == ("xpassed", "expected to fail, but holds: known")
        assert outcome.message.endswith("take the expectation out of the spec")
        assert outcome.is_bad

    @pytest.mark.parametrize(("found", "expected"), [(GOOD, "passed"), (verdicts(a=WRONG), "xfailed")])
    def test_what_is_flaky_may_do_either(self, case_of, found, expected):
        assert judge(case_of((None, "flaky", "known")), found).outcome == expected


class TestExpectationsOfSamples:
    def test_the_failure_of_the_sample_that_was_named_does_not_count(self, case_of):
        outcome = judge(case_of(("b", "fail", "known")), verdicts(b=WRONG))
        assert (outcome.outcome, outcome.reason) == ("xfailed", "known")

    def test_the_failure_of_another_sample_counts(self, case_of):
        outcome = judge(case_of(("b", "fail", "known")), verdicts(a=WRONG, b=WRONG))
        assert (outcome.outcome, outcome.fields["sample"]) == ("failed", "a")
        assert "1 of 4 samples failed" in outcome.message

    def test_the_reason_is_that_of_the_sample_that_failed(self, case_of):
        expectations = [("a", "flaky", "sometimes"), ("g", "skip", "never"), ("b", "fail", "always")]
        assert judge(case_of(*expectations), verdicts(b=WRONG)).reason == "always"
        assert judge(case_of(*expectations), verdicts(a=WRONG, b=WRONG)).reason == "sometimes; always"

    def test_a_named_sample_that_holds_counts(self, case_of):
        outcome = judge(case_of(("b", "fail", "known")), GOOD)
        assert (outcome.outcome, outcome.reason) == ("xpassed", "sample b was expected to fail, but holds: known")

    def test_the_name_of_a_grid_means_all_its_samples(self, case_of):
        assert judge(case_of(("g", "fail", "known")), verdicts(g=WRONG)).outcome == "xfailed"
        assert judge(case_of(("g[x=1]", "fail", "known")), verdicts(g=WRONG)).outcome == "failed"

    def test_a_flaky_sample_may_hold(self, case_of):
        assert judge(case_of(("b", "flaky", "known")), GOOD).outcome == "passed"


class TestSkippedSamples:
    def test_a_skipped_sample_does_not_run(self, case_of):
        case = case_of(("g", "skip", "slow"))
        assert [sample.name for sample in samples_to_run(case)] == ["a", "b"]
        assert nothing_to_run(case) == ""

    def test_a_case_without_samples_left_says_why(self, case_of):
        case = case_of(("a", "skip", "slow"), ("b", "skip", "slow"), ("g", "skip", "huge"))
        assert nothing_to_run(case) == "slow; huge"
