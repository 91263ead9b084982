"""Of several failing samples, the most telling one comes first, and what their diagnoses share is said before."""

import pytest

from opcheck.checks.verdict import Verdict, cannot
from opcheck.running.judge import in_common, in_order


def finding(kind, says, place="output 0 with respect to x", **fields):
    return {"kind": kind, "text": f"{place}: {says}", "fields": fields}


def factor(number, *sizes, alone=False, elements=()):
    fields = {"factor": number, "what": "gradient", "sizes": [*sizes], "elements": [*elements], "alone": alone}
    return finding("factor", f"the gradient is {number} times what it should be", **fields)


def failure(*findings, entries=1, sample="0"):
    return Verdict(False, "wrong", sample=sample, fields={"diagnosis": [*findings], "entries": entries})


SIGN = finding("sign", "the gradient has the wrong sign")
ELEMENTS = "number of elements of the input"
UNLIKE = finding("unlike", "4 of 4 entries are wrong")
COLUMNS = finding("columns", "only 1 of 3 elements of the input is wrong: [2]")


def test_a_named_mistake_comes_before_a_place_and_a_place_before_a_single_number():
    alone, place, named = failure(factor(2.0, alone=True)), failure(COLUMNS), failure(SIGN)
    assert in_order([alone, place, named]) == [named, place, alone]


def test_of_two_that_tell_the_same_the_larger_jacobian_comes_first():
    small, large = failure(SIGN, entries=1), failure(SIGN, entries=36)
    assert in_order([small, large]) == [large, small]


def test_failures_come_before_errors_and_equals_keep_their_order():
    error, one, two = cannot("no"), Verdict(False, "wrong", sample="1"), Verdict(False, "wrong", sample="2")
    assert in_order([error, one, two]) == [one, two, error]


@pytest.mark.parametrize("fields", [{"diagnosis": "bad"}, {"diagnosis": [1]}, {"diagnosis": [{}]}, {"entries": "many"}])
def test_fields_of_other_checks_may_be_anything(fields):
    verdicts = [Verdict(False, "own", fields=fields), Verdict(False, "own")]
    assert in_order(verdicts) == verdicts
    assert list(in_common(verdicts)) == []


def test_what_all_samples_share_is_said_once():
    (line,) = in_common([failure(SIGN), failure(SIGN), failure(UNLIKE)])
    assert line == "in 2 of 3 samples: output 0 with respect to x: the gradient has the wrong sign"


def test_what_one_sample_shows_or_what_looks_like_nothing_is_not_shared():
    assert list(in_common([failure(SIGN), failure(COLUMNS)])) == []
    assert list(in_common([failure(UNLIKE), failure(UNLIKE)])) == []


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        (factor(2.0), factor(2.0), "the gradient is 2 times what it should be"),
        (factor([0.0, 2.0]), factor([0.0, 2.0]), "the gradient is 0+2j times what it should be"),
        (factor(0.25, "size of dim 0 of the input"), factor(1 / 3, "size of dim 0 of the input"),
         "the gradient is divided by the size of dim 0 of the input"),
        (factor(4.0, "size of dim 0 of the input", elements=[ELEMENTS]), factor(6.0, ELEMENTS),
         f"the gradient is multiplied by the {ELEMENTS}"),
        (factor(2.0), factor(2.5), "the factor differs between samples: 2, 2.5"),
    ],
)  # fmt: skip
def test_a_factor_is_a_constant_or_a_size_or_neither(one, other, says):
    (line,) = in_common([failure(one), failure(other)])
    assert line == f"in 2 of 2 samples: output 0 with respect to x: {says}"
