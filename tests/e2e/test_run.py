"""`opcheck run` as a user runs it: in a process of its own, alone and in parallel."""

from __future__ import annotations

import shlex

import pytest

from tests.demo_project import BIN, OPERATORS

ZOO = """
[defaults]
dtypes   = { forward = ["float64"] }
supports = { out = false, vmap = false, forward_ad = false }
samples  = [{ args = [{ shape = [2] }] }]

[[operator]]
name   = "demo.wrong"
[[operator.expect]]
when    = { check = "backward" }
outcome = "fail"
reason  = "the slope is three"

[[operator]]
name   = "demo.double"
[[operator.expect]]
when    = { check = "backward" }
outcome = "fail"
reason  = "we thought so"
[[operator.expect]]
when    = { check = "variants" }
outcome = "skip"
reason  = "not now"

[[operator]]
name   = "demo.raises"

[[operator]]
name   = "demo.leaves"

[[operator]]
name   = "demo.noisy"
reseed = true
"""

EXPECTED = {
    "demo.wrong::backward[cpu-float64]": "xfailed",
    "demo.wrong::grad_dtypes[cpu-float64]": "passed",
    "demo.wrong::variants[cpu-float64]": "passed",
    "demo.double::backward[cpu-float64]": "xpassed",
    "demo.double::grad_dtypes[cpu-float64]": "passed",
    "demo.double::variants[cpu-float64]": "skipped",
    "demo.raises::backward[cpu-float64]": "error",
    "demo.raises::grad_dtypes[cpu-float64]": "error",
    "demo.raises::variants[cpu-float64]": "error",
    "demo.leaves::backward[cpu-float64]": "error",
    "demo.leaves::grad_dtypes[cpu-float64]": "error",
    "demo.leaves::variants[cpu-float64]": "error",
    "demo.noisy::backward[cpu-float64]": "passed",
    "demo.noisy::grad_dtypes[cpu-float64]": "passed",
    "demo.noisy::variants[cpu-float64]": "passed",
}

REPORTS = ("--report-json", "report.json", "--junitxml", "report.xml")
CHECKS = ("--check", "backward,grad_dtypes,variants")


@pytest.fixture(scope="module")
def alone(shared):
    """The zoo, in one process."""

    def run(project):
        project.write("zoo.toml", ZOO)
        return project.run("opcheck", "run", "zoo.toml", *CHECKS, *REPORTS)

    return shared("alone", run)


# Each crash costs a process, so that it has a case of one check alone.
ABORTS = """
[[operator]]
name     = "demo.aborts"
supports = { backward = false, forward_ad = false }
samples  = [{ args = [{ shape = [2] }] }]
"""


@pytest.fixture(scope="module")
def parallel(shared):
    """The zoo and an operator that crashes, in two processes."""

    def run(project):
        project.write("zoo.toml", ZOO)
        project.write("crash.toml", ABORTS)
        return project.run("opcheck", "run", "crash.toml", "zoo.toml", *CHECKS, "--dtype=float64", "-n", "2", *REPORTS)

    return shared("parallel", run)


class TestAlone:
    def test_each_case_comes_to_its_outcome(self, alone):
        assert alone.outcomes == EXPECTED

    def test_something_that_fails_gives_exit_code_1(self, alone):
        assert alone.code == 1

    def test_a_record_has_the_keys_that_consumers_rely_on(self, alone):
        for name, record in alone.records.items():
            assert {"id", "operator", "check", "device", "dtype", "outcome", "reason", "seconds", "message"} <= set(
                record
            )
            assert name == f"{record['operator']}::{record['check']}[{record['device']}-{record['dtype']}]"
            assert record["seconds"] >= 0

    def test_reasons_say_why(self, alone):
        assert alone.records["demo.wrong::backward[cpu-float64]"]["reason"] == "the slope is three"
        assert alone.records["demo.double::variants[cpu-float64]"]["reason"] == "not now"
        assert alone.records["demo.double::backward[cpu-float64]"]["reason"] == (
            "expected to fail, but holds: we thought so"
        )
        assert "not today" in alone.records["demo.raises::backward[cpu-float64]"]["reason"]
        assert alone.records["demo.leaves::backward[cpu-float64]"]["reason"] == (
            "the operator ends the process: SystemExit: 3"
        )

    def test_the_summary_counts_everything(self, alone):
        last = alone.out.splitlines()[-1]
        assert last.startswith("15 cases in ")
        assert last.endswith(": 6 passed, 6 error, 1 skipped, 1 xfailed, 1 xpassed")

    def test_skips_and_expected_failures_are_told_with_their_reasons(self, alone):
        assert "skipped 1 case: not now" in alone.out.splitlines()
        assert "xfailed 1 case: the slope is three" in alone.out.splitlines()

    def test_each_cause_has_a_line_that_names_its_first_case(self, alone):
        bad = ("error", "xpassed")
        lines, causes = alone.out.splitlines(), set()
        for name, outcome in EXPECTED.items():
            reason = alone.records[name]["reason"]
            cause = (name.partition("::")[0], reason)
            line = f"{outcome} {name}: {reason}"
            assert lines.count(line) == (1 if outcome in bad and cause not in causes else 0)
            causes.add(cause)

    def test_no_traceback_is_shown(self, alone):
        assert "Traceback" not in alone.out + alone.err

    def test_junit_names_tests_by_case_ids(self, alone):
        assert [case["name"] for case in alone.junit] == list(EXPECTED)
        assert {case["classname"] for case in alone.junit} == {"zoo"}

    def test_junit_tells_the_outcomes(self, alone):
        told = {
            "passed": "passed",
            "skipped": "skipped",
            "xfailed": "skipped",
            "error": "failure",
            "xpassed": "failure",
        }
        assert {case["name"]: case["kind"] for case in alone.junit} == {
            name: told[outcome] for name, outcome in EXPECTED.items()
        }


class TestInParallel:
    def test_outcomes_are_those_of_one_process(self, parallel, alone):
        others = {name: outcome for name, outcome in parallel.outcomes.items() if "aborts" not in name}
        assert others == alone.outcomes

    def test_a_case_that_crashes_its_process_is_an_error(self, parallel):
        crashed = {name: record for name, record in parallel.records.items() if "aborts" in name}
        assert set(crashed) == {"demo.aborts::variants[cpu-float64]"}
        for name, record in crashed.items():
            assert (record["outcome"], record["reason"]) == ("error", "the process crashed (SIGABRT), at sample 0")
            assert f"run just this: opcheck run 'crash.toml::{name}'" in record["message"]
            assert f"{record['operator']}::{record['check']}[{record['device']}-{record['dtype']}]" == name

    def test_junit_names_tests_by_case_ids_also_where_the_process_crashed(self, parallel):
        assert sorted(case["name"] for case in parallel.junit) == sorted(parallel.records)
        assert {case["classname"] for case in parallel.junit} == {"zoo", "crash"}

    def test_the_summary_counts_everything(self, parallel):
        last = parallel.out.splitlines()[-1]
        assert last.endswith(": 6 passed, 7 error, 1 skipped, 1 xfailed, 1 xpassed")
        assert parallel.code == 1


def test_a_failure_says_how_to_run_just_this_and_that_does_so(cli):
    first = cli("run", "--check", "backward", *REPORTS)
    (line,) = [line for line in first.out.splitlines() if line.startswith("run just this: ")]
    command = shlex.split(line.removeprefix("run just this: "))
    assert command == ["opcheck", "run", "specs/bad.toml::demo.wrong::backward[cpu-float64]"]
    again = cli(*command[1:], *REPORTS)
    assert again.code == 1
    assert again.outcomes == {"demo.wrong::backward[cpu-float64]": "failed"}
    message = again.records["demo.wrong::backward[cpu-float64]"]["message"]
    assert message in again.out
    assert "worst entry: d output 0[0] / d x[0] = 2 numerically, 3 analytically" in message


REPORTING = """

import os

def threads(x):
    raise RuntimeError(f"OMP_NUM_THREADS is {os.environ.get('OMP_NUM_THREADS')}")
"""


@pytest.mark.nightly
@pytest.mark.parametrize(("own", "expected"), [(["-u", "OMP_NUM_THREADS"], "1"), (["OMP_NUM_THREADS=3"], "3")])
def test_a_reference_takes_one_thread_unless_the_user_sets_another_number(project, own, expected):
    project.write("demo.py", OPERATORS + REPORTING)
    lines = [
        "[[operator]]",
        'name = "demo.double"',
        'reference = "demo.threads"',
        "samples = [{ args = [{ shape = [2] }] }]",
    ]
    project.write("specs/one.toml", "\n".join(lines))
    run = project.run("/usr/bin/env", *own, str(BIN / "opcheck"), "run", "specs/one.toml", "--check", "reference")
    assert f"demo.threads raised RuntimeError: OMP_NUM_THREADS is {expected}" in run.out
    assert run.code == 1
