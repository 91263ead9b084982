"""A failure that the spec expects is confirmed once; the verdict is the one of a failure that nobody expects."""

import pytest

from opcheck.samples.function import TestedFunction

BOTH = pytest.mark.parametrize("dtype", ["float64", "complex128"])
WRONG = [
    ("faulty.wrong_sign", "backward"),
    ("faulty.wrong_jvp", "forward_ad"),
    ("faulty.second_order_wrong", "rev_over_rev"),
    ("awkward.cube_wrong_at_third_order", "rev_over_rev_over_rev"),
]


def expect(check, more=""):
    return f'expect = [{{ when = {{ check = "{check}" }}, outcome = "fail", reason = "known"{more} }}]'


@pytest.fixture
def calls(monkeypatch):
    """The calls of operators."""
    made, own = [], TestedFunction.called
    monkeypatch.setattr(TestedFunction, "called", lambda *args: made.append(1) or own(*args))
    return made


@BOTH
@pytest.mark.parametrize(("operator", "check"), WRONG)
def test_an_expected_failure_takes_fewer_calls(verdict_of, calls, operator, check, dtype):
    def cost(keys):
        calls.clear()
        outcome = verdict_of(f"operators.{operator}", check, dtype, keys)
        return outcome.outcome, len(calls)

    (failed, whole), (expected, once) = cost(""), cost(expect(check))
    assert (failed, expected) == ("failed", "xfailed")
    assert once < 0.7 * whole


@BOTH
def test_a_failure_with_another_text_is_told_in_full(verdict_of, dtype):
    keys = expect("backward", ', match = "something else"')
    outcome = verdict_of("operators.faulty.wrong_sign", "backward", dtype, keys)
    assert outcome.outcome == "failed"
    assert "it looks like this: output 0 with respect to x: the gradient has the wrong sign" in outcome.message
    assert "the spec expects a different result" in outcome.message


@BOTH
def test_a_text_that_only_the_full_evidence_has_is_expected_like_any_other(verdict_of, dtype):
    keys = expect("rev_over_rev", ', match = "is 3/2 times"')  # what it looks like: one confirmation does not say it
    outcome = verdict_of("operators.faulty.both_orders_wrong", "rev_over_rev", dtype, keys)
    assert (outcome.outcome, outcome.reason) == ("xfailed", "known")


@BOTH
def test_a_failure_that_is_expected_and_does_not_come_fails(verdict_of, dtype):
    assert verdict_of("operators.right.square", "backward", dtype, expect("backward")).outcome == "xpassed"


def test_a_kink_is_no_expected_failure(verdict_of):
    samples = "samples = [{ args = [{ values = [1.0, 0.0] }] }]"
    assert verdict_of("torch.relu", "backward", keys=expect("backward"), samples=samples).outcome == "inconclusive"
