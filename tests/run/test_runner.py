"""Running one case: whatever goes wrong becomes an outcome."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch

from opcheck.checks.verdict import Verdict
from opcheck.run.runner import run
from opcheck.run.session import RunSession
from opcheck.spec import Settings

NAME = "operators.right.square::backward[cpu-float64]"


@pytest.fixture(scope="module")
def session():
    return RunSession.start(Settings(modules=("torch", "operators")))


SPEC = """
[[operator]]
name    = "{}"
samples = [{{ args = [{{ shape = [2] }}] }}]
"""


@pytest.fixture
def checked_by(case_of, session):
    """Return a function that runs a case whose check is the given function."""

    def run_with(check, case=None):
        case = case or case_of(text=SPEC.format("operators.right.square"))
        globals()["_check"] = check
        return run(replace(case, kind=replace(case.kind, implementation=f"{__name__}:_check")), session)

    return run_with


def test_a_case_that_holds_has_passed_and_took_some_time(case_of, session):
    outcome = run(case_of(text=SPEC.format("operators.right.square")), session)
    assert (outcome.id, outcome.outcome, outcome.message) == (NAME, "passed", "")
    assert 0 < outcome.seconds < 60


def test_a_case_that_fails_says_how_to_run_it_again(case_of, session, tmp_path):
    outcome = run(case_of(text=SPEC.format("operators.faulty.wrong_sign")), session)
    assert outcome.outcome == "failed"
    last = outcome.message.splitlines()[-1]
    assert (
        last == f"run just this: opcheck run '{tmp_path}/spec.toml::operators.faulty.wrong_sign::backward[cpu-float64]'"
    )


def test_an_operator_that_refuses_its_sample_is_no_known_wrong_gradient(case_of, session):
    known = '[[operator.expect]]\nwhen = { check = "backward" }\noutcome = "fail"\nreason = "gradient is 2/3"\n'
    spec = SPEC.format("operators.right.scale").replace("{ shape = [2] }", "{ shape = [2] }, 1.0, 2.0")
    outcome = run(case_of(text=spec + known), session)
    assert outcome.outcome == "error"
    assert outcome.reason.startswith("the operator refuses the sample: TypeError: scale() takes")
    assert run(case_of(text=spec + known.replace("fail", "error")), session).outcome == "xfailed"


def test_an_operator_that_does_not_exist_is_an_error_with_its_place(case_of, session, tmp_path):
    outcome = run(case_of(text=SPEC.format("operators.right.sqare")), session)
    line = (
        f'{tmp_path}/spec.toml:3:11: "operators.right.sqare": operators.right has no attribute "sqare"; '
        'did you mean "operators.right.square"?'
    )
    assert (outcome.outcome, outcome.reason) == ("error", line)
    assert outcome.message == f"operators.right.sqare::backward[cpu-float64]: {line}"


def test_a_check_that_breaks_is_told_apart_from_an_operator_that_does(checked_by):
    def check(context):
        raise ZeroDivisionError("oh")

    outcome = checked_by(check)
    assert (outcome.outcome, outcome.reason) == ("error", "the check itself broke: ZeroDivisionError: oh")
    assert outcome.message.splitlines()[-1] == "this is a defect of the check"


@pytest.mark.parametrize("error", [MemoryError("much"), torch.OutOfMemoryError("much")])
def test_exhausted_memory_is_an_error(checked_by, error):
    def check(context):
        raise error

    outcome = checked_by(check)
    assert outcome.outcome == "error"
    assert outcome.reason.startswith("out of memory: ")


def test_an_operator_that_exits_does_not_take_the_run_with_it(checked_by):
    def check(context):
        raise SystemExit("bye")

    outcome = checked_by(check)
    assert (outcome.outcome, outcome.reason) == ("error", "the operator ends the process: SystemExit: bye")


def test_an_interrupt_passes_through(checked_by):
    def check(context):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checked_by(check)


def test_the_generator_of_random_numbers_is_seeded_by_the_case_and_put_back(checked_by):
    drawn = []

    def check(context):
        drawn.append(torch.rand(1).item())
        return []

    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    checked_by(check)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    checked_by(check)
    assert drawn[0] == drawn[1]


def test_warnings_of_operators_are_not_shown(checked_by):
    def check(context):
        warnings.warn("each time", stacklevel=1)
        return [Verdict(True)]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checked_by(check).outcome == "passed"


def test_a_check_without_a_verdict_is_an_error(checked_by):
    outcome = checked_by(lambda context: [])
    assert (outcome.outcome, outcome.reason) == ("error", "backward gave no verdict: nothing was tested")


class TestSkipped:
    def test_a_case_of_an_absent_device_is_skipped_with_the_reason(self, case_of, session, monkeypatch):
        monkeypatch.setattr("torch.version.cuda", None)
        monkeypatch.setattr("torch.version.hip", None)
        outcome = run(case_of(text=SPEC.format("torch.sin"), device="cuda"), session)
        assert outcome.outcome == "skipped"
        assert outcome.reason == "the device cuda is not present: this build of torch has no CUDA"

    def test_a_case_that_is_expected_to_be_skipped_does_not_run(self, case_of, checked_by):
        def check(context):
            pytest.fail("it runs")

        outcome = checked_by(check, case_of((None, "skip", "takes an hour")))
        assert (outcome.outcome, outcome.reason) == ("skipped", "takes an hour")

    def test_a_case_all_of_whose_samples_are_skipped_says_why(self, case_of, checked_by):
        case = case_of(("a", "skip", "slow"), ("b", "skip", "slow"), ("g", "skip", "huge"))
        outcome = checked_by(lambda context: [], case)
        assert (outcome.outcome, outcome.reason) == ("skipped", "slow; huge")

    def test_a_case_without_samples_for_its_dtype_says_so(self, case_of, checked_by):
        text = SPEC.format("torch.sin").replace("] }] }]", '] }], dtypes = ["float32"] }]')
        outcome = checked_by(lambda context: [], case_of(text=text))
        assert (outcome.outcome, outcome.reason) == ("skipped", "no sample is meant for float64")
