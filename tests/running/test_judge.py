"""From verdicts to an outcome, with and without expectations."""

from __future__ import annotations

import pytest

from opcheck.checks.verdict import HOLDS, Verdict, blocked, cannot, fails, inapplicable, untested
from opcheck.running.judge import expected, judge
from opcheck.running.outcome import Outcome


def on(name, verdict):
    """Return a verdict on a sample."""
    return Verdict(**{**vars(verdict), "sample": name})


GOOD = [on(name, HOLDS) for name in ("a", "b", "g[x=1]", "g[x=2]")]


def verdicts(**others):
    """Return verdicts that hold but on some samples."""
    return [on(verdict.sample, others.get(verdict.sample[0], verdict)) for verdict in GOOD]


WRONG = fails("the slope is wrong", "by a lot", row=1)
REFUSED = cannot("the operator refuses the sample", "TypeError: no")
KINK = Verdict(False, "a kink", "move the sample", state="inconclusive")
NOTHING = untested("no output requires grad")


class TestWithoutExpectations:
    def test_all_that_holds_has_passed(self, case_of):
        outcome = judge(case_of(), GOOD)
        assert (outcome.outcome, outcome.reason, outcome.message, outcome.fields) == ("passed", "", "", {})
        assert outcome.id == "operators.right.square::backward[cpu-float64]"

    def test_one_failing_sample_fails_the_case(self, case_of):
        outcome = judge(case_of(), verdicts(b=WRONG))
        assert (outcome.outcome, outcome.reason) == ("failed", "the slope is wrong")
        assert outcome.fields == {"sample": "b", "row": 1}
        assert outcome.message.splitlines() == [
            "operators.right.square::backward[cpu-float64]: 1 of 4 samples failed", "",
            "sample b ()", "  the slope is wrong", "  by a lot",
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

    def test_a_verdict_on_the_case_counts_no_samples(self, case_of):
        assert judge(case_of(), [*GOOD, WRONG]).message.splitlines()[0].endswith("[cpu-float64]: failed")

    def test_of_many_failures_without_a_sample_the_titles_are_told(self, case_of):
        effects = [Verdict(False, f"side effect {number}") for number in range(5)]
        assert judge(case_of(), effects).message.splitlines()[-1] == "also: side effect 3, side effect 4"

    def test_the_title_of_what_holds_is_of_no_use(self, case_of):
        outcome = judge(case_of(), verdicts(b=Verdict(True, "an output is not finite")))
        assert (outcome.outcome, outcome.fields) == ("passed", {})

    def test_of_many_failures_three_are_told_and_the_others_named(self, case_of):
        message = judge(case_of(), verdicts(a=WRONG, b=WRONG, g=WRONG)).message
        assert message.count("the slope is wrong") == 3
        assert message.splitlines()[-1] == "also: g[x=2]"

    def test_no_verdict_is_an_error(self, case_of):
        outcome = judge(case_of(), [])
        assert (outcome.outcome, outcome.reason) == ("error", "backward gave no verdict: nothing was tested")

    def test_where_there_was_nothing_to_compare_a_case_is_skipped_with_the_reason(self, case_of):
        outcome = judge(case_of(), verdicts(a=NOTHING, b=NOTHING, g=NOTHING))
        assert (outcome.outcome, outcome.reason) == ("skipped", "no output requires grad")

    def test_a_sample_with_nothing_to_compare_does_not_count(self, case_of):
        outcome = judge(case_of(), verdicts(b=NOTHING))
        assert (outcome.outcome, outcome.fields) == ("passed", {})
        assert "1 of 3 samples failed" in judge(case_of(), verdicts(a=WRONG, b=NOTHING)).message

    def test_a_sample_with_several_verdicts_counts_once(self, case_of):
        twice = [*verdicts(a=WRONG), *verdicts(a=WRONG)]
        assert "1 of 4 samples failed" in judge(case_of(), twice).message


class TestExpectationsOfTheCase:
    def test_a_failure_that_was_expected_does_not_count(self, case_of):
        outcome = judge(case_of((None, "fail", "known")), verdicts(b=WRONG))
        assert (outcome.outcome, outcome.reason, outcome.message) == ("xfailed", "known", "the slope is wrong")

    def test_a_pass_that_was_not_expected_counts(self, case_of, tmp_path):
        outcome = judge(case_of((None, "fail", "known")), GOOD)
        assert (outcome.outcome, outcome.reason) == ("xpassed", "expected to fail, but holds: known")
        place, told, advice = outcome.message.replace(": ", "\n", 1).splitlines()
        assert place == f"{tmp_path}/spec.toml:11:1"
        assert (told, advice) == (outcome.reason, "remove the expectation at this position, or narrow its when")
        assert outcome.is_bad

    @pytest.mark.parametrize(("found", "expected"), [(GOOD, "passed"), (verdicts(a=WRONG), "xfailed")])
    def test_what_is_flaky_may_do_either(self, case_of, found, expected):
        assert judge(case_of((None, "flaky", "known")), found).outcome == expected

    @pytest.mark.parametrize(
        ("outcome", "meets"), [("fail", WRONG), ("flaky", WRONG), ("error", REFUSED), ("inconclusive", KINK)]
    )
    @pytest.mark.parametrize(("found", "is_then"), [(WRONG, "failed"), (REFUSED, "error"), (KINK, "inconclusive")])
    def test_an_expected_outcome_means_itself_and_no_other(self, case_of, outcome, meets, found, is_then):
        judged = judge(case_of((None, outcome, "the gradient is 2/3")), verdicts(b=found))
        assert judged.outcome == ("xfailed" if found is meets else is_then)

    def test_one_expected_failure_hides_no_other_kind_of_failure(self, case_of):
        outcome = judge(case_of((None, "fail", "known")), verdicts(a=WRONG, b=REFUSED))
        assert (outcome.outcome, outcome.fields["sample"]) == ("error", "b")
        assert "1 of 4 samples failed" in outcome.message
        assert 'the spec expects a different result: outcome = "fail" (known)' in outcome.message

    @pytest.mark.parametrize(
        ("pattern", "is_then"), [("slope", "xfailed"), ("by a l.t", "xfailed"), ("sign", "failed")]
    )
    def test_a_failure_has_to_say_what_is_expected_of_it(self, case_of, pattern, is_then):
        assert judge(case_of((None, "fail", "known", pattern)), verdicts(b=WRONG)).outcome == is_then

    def test_one_expected_failure_hides_no_other_one(self, case_of):
        case = case_of((None, "fail", "known", "slope"))
        outcome = judge(case, verdicts(a=WRONG, b=fails("the sign is wrong")))
        assert (outcome.outcome, outcome.reason) == ("failed", "the sign is wrong")

    def test_every_expectation_counts_not_only_the_first(self, case_of):
        both = case_of((None, "fail", "the slope", "slope"), (None, "fail", "the sign", "sign"))
        assert judge(both, verdicts(a=WRONG, b=fails("the sign is wrong"))).outcome == "xfailed"
        outcome = judge(both, verdicts(a=WRONG))
        assert (outcome.outcome, outcome.reason) == ("xpassed", "expected to fail, but holds: the sign")

    def test_a_failure_and_an_error_may_be_expected_of_one_case(self, case_of):
        both = case_of((None, "fail", "wrong"), (None, "error", "refuses"))
        assert judge(both, verdicts(a=WRONG, b=REFUSED)).reason == "wrong; refuses"
        assert judge(both, verdicts(a=WRONG)).reason == "expected to be an error, but is none: refuses"

    def test_what_is_flaky_may_not_be_an_error(self, case_of):
        assert judge(case_of((None, "flaky", "known")), verdicts(b=REFUSED)).outcome == "error"

    def test_an_operator_that_refuses_its_own_sample_has_no_wrong_gradient(self, case_of):
        refuses = [
            on(name, cannot("the operator refuses the sample: TypeError: f() takes 2 arguments")) for name in "ab"
        ]
        outcome = judge(case_of((None, "fail", "the gradient is 2/3")), refuses)
        assert (outcome.outcome, outcome.is_bad) == ("error", True)


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

    def test_each_of_the_named_samples_must_fail(self, case_of):
        outcome = judge(case_of(("g", "fail", "known")), [*verdicts(g=WRONG)[:3], GOOD[3]])
        assert (outcome.outcome, outcome.reason) == (
            "xpassed", "sample g[x=2] was expected to fail, but holds: known"
        )  # fmt: skip

    def test_a_sample_and_the_rest_of_the_case_may_be_expected_to_differ(self, case_of):
        case = case_of(("b", "error", "refuses"), (None, "fail", "wrong"))
        assert judge(case, verdicts(a=WRONG, b=REFUSED)).outcome == "xfailed"
        assert judge(case, verdicts(a=REFUSED, b=REFUSED)).outcome == "error"

    def test_a_named_sample_where_nothing_is_compared_no_longer_fails(self, case_of):
        assert judge(case_of(("b", "fail", "known")), verdicts(b=NOTHING)).outcome == "xpassed"

    def test_of_several_verdicts_on_a_sample_one_must_be_the_failure(self, case_of):
        assert judge(case_of(("b", "fail", "known")), [*GOOD, *verdicts(b=WRONG)]).outcome == "xfailed"

    def test_a_case_that_does_not_test_the_sample_is_none_of_its_business(self, case_of):
        assert judge(case_of(("b", "fail", "known")), [HOLDS]).outcome == "passed"
        beside = inapplicable("the first argument cannot hold the result")
        assert judge(case_of(("b", "fail", "known")), verdicts(b=beside)).outcome == "passed"


class TestBlocked:
    BLOCKED = blocked("purity", "backward: not judged, since purity: forward writes", "the slope is wrong")

    def test_a_claim_that_was_not_judged_fails_the_run(self, case_of):
        outcome = judge(case_of(), verdicts(b=self.BLOCKED))
        assert (outcome.outcome, outcome.is_bad, outcome.reason) == ("blocked", True, self.BLOCKED.title)

    @pytest.mark.parametrize(("other", "first"), [(WRONG, "failed"), (REFUSED, "error"), (KINK, "inconclusive")])
    def test_what_was_judged_comes_first(self, case_of, other, first):
        assert judge(case_of(), verdicts(a=self.BLOCKED, b=other)).outcome == first

    def test_whoever_expects_the_failure_expects_that_it_is_blocked(self, case_of):
        case = case_of((None, "fail", "known", "slope"))
        assert judge(case, verdicts(b=self.BLOCKED)).outcome == "xfailed"
        assert judge(case_of((None, "error", "known")), verdicts(b=self.BLOCKED)).outcome == "blocked"

    @pytest.mark.parametrize(
        ("check", "outcome", "becomes"),
        [("purity", "fail", "xfailed"), ("context", "fail", "blocked"), ("purity", "error", "blocked")],
    )
    def test_whoever_expects_the_cause_expects_what_follows(self, case_of, check, outcome, becomes):
        case = case_of(text=SPEC.format(EXPECT.format(check=check, outcome=outcome)))
        judged = judge(case, verdicts(b=self.BLOCKED))
        assert judged.outcome == becomes
        assert judge(case, GOOD).outcome == "passed"


SPEC = """
[[operator]]
name    = "operators.right.square"
dtypes  = {{ forward = ["float64"] }}
samples = [
  {{ name = "a", args = [{{ shape = [2] }}] }},
  {{ name = "b", args = [{{ shape = [3] }}] }},
]
{}
"""

EXPECT = """
[[operator.expect]]
when    = {{ check = "{check}" }}
outcome = "{outcome}"
reason  = "it writes"
"""


class TestErrorsFromOutside:
    def crashed(self, case):
        return Outcome.of(case, "error", "the process crashed: SIGSEGV", "the whole story", signal=11)

    def test_a_crash_that_is_expected_does_not_count(self, case_of):
        case = case_of((None, "error", "known", "SIGSEGV|SIGBUS"))
        outcome = expected(case, self.crashed(case))
        assert (outcome.outcome, outcome.reason) == ("xfailed", "known")
        assert (outcome.message, outcome.fields) == ("the process crashed: SIGSEGV", {"signal": 11})

    @pytest.mark.parametrize(
        "expectation",
        [
            (None, "fail", "known"),
            (None, "flaky", "known"),
            (None, "error", "known", "time-out"),
            ("b", "error", "known"),
        ],
    )
    def test_what_means_something_else_does_not_cover_a_crash(self, case_of, expectation):
        case = case_of(expectation)
        assert expected(case, self.crashed(case)) == self.crashed(case)

    def test_what_is_no_error_stays_what_it_is(self, case_of):
        case = case_of((None, "error", "known"))
        assert expected(case, Outcome.of(case, "failed", "wrong")).outcome == "failed"
