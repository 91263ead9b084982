"""What a spec leaves out: samples and whole cases, with the reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opcheck.planning import Case
from opcheck.planning.skips import reason_to_skip, samples_to_run

TEXT = """
[[operator]]
name    = "torch.sin"
dtypes  = ["float32", "float64"]
errors  = [{ args = [1], raises = "TypeError", match = "Tensor" }]
samples = [
  { name = "a", args = [{ shape = [2] }], dtypes = ["float64"] },
  { name = "g", args = [{ shape = [2] }], grid = { out = [{ none = true }] }, dtypes = ["float64"] },
]
"""

EXPECT = """
[[operator.expect]]
when    = { %s }
outcome = "%s"
reason  = "%s"
"""

CaseOf = Callable[..., Case]


@pytest.fixture
def case_of(planned: Callable[..., list[Case]]) -> CaseOf:
    def make(*expectations: tuple[str, str, str], check: str = "backward", dtype: str = "float64") -> Case:
        text = TEXT + "".join(EXPECT % expectation for expectation in expectations)
        (case,) = planned(text, checks=(check,), dtypes=(dtype,))
        return case

    return make


def names(case: Case) -> list[str]:
    return [sample.name for sample in samples_to_run(case)]


def test_a_skipped_sample_does_not_run(case_of: CaseOf) -> None:
    case = case_of(('sample = "g"', "skip", "slow"))
    assert names(case) == ["a"]
    assert reason_to_skip(case) == ""


def test_a_case_without_samples_left_says_why(case_of: CaseOf) -> None:
    case = case_of(('sample = "a"', "skip", "slow"), ('sample = "g"', "skip", "huge"))
    assert names(case) == []
    assert reason_to_skip(case) == "slow; huge"


def test_a_skipped_case_says_why(case_of: CaseOf) -> None:
    case = case_of(('check = "backward"', "skip", "not today"))
    assert reason_to_skip(case) == "not today"


def test_an_expected_failure_runs(case_of: CaseOf) -> None:
    case = case_of(('check = "backward"', "fail", "wrong"))
    assert (len(names(case)), reason_to_skip(case)) == (2, "")


def test_a_dtype_that_no_sample_is_meant_for_is_the_reason(case_of: CaseOf) -> None:
    assert reason_to_skip(case_of(check="dtypes", dtype="float32")) == "no sample is meant for float32"


def test_errors_need_no_samples(case_of: CaseOf) -> None:
    case = case_of(('sample = ["a", "g"]', "skip", "slow"), check="errors")
    assert (names(case), reason_to_skip(case)) == ([], "")
