"""The example project, as its README says: `opcheck run` and `pytest` find the same mistakes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "custom_op"
REPORT = ("--report-json", "report.json")

pytestmark = pytest.mark.nightly


def copied(project):
    shutil.rmtree(project.folder)
    shutil.copytree(EXAMPLE, project.folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    return project


@pytest.fixture(scope="module")
def by_opcheck(shared):
    return shared("custom_opcheck", lambda project: copied(project).run("opcheck", "run", *REPORT))


def test_both_ways_agree_case_by_case(by_opcheck, shared):
    options = ("specs", "-q", "--opcheck-report-json", "report.json")
    by_pytest = shared("custom_pytest", lambda project: copied(project).run("pytest", *options))
    assert len(by_opcheck.outcomes) > 80
    assert by_pytest.outcomes == by_opcheck.outcomes
    assert (by_opcheck.code, by_pytest.code) == (1, 1)


def test_the_right_operators_pass(by_opcheck):
    for name in ("softops.squareplus", "softops.logcosh"):
        own = {case: outcome for case, outcome in by_opcheck.outcomes.items() if case.startswith(f"{name}::")}
        bad = {case: outcome for case, outcome in own.items() if outcome not in ("passed", "xfailed")}
        assert all("::fwd_over_fwd[" in case and outcome == "skipped" for case, outcome in bad.items()), bad


@pytest.mark.parametrize(
    ("name", "check"), [("softops.wrong_squareplus", "rev_over_rev"), ("softops.wrong_logcosh", "backward")]
)
def test_a_wrong_operator_fails_under_the_check_that_should_catch_it(by_opcheck, name, check):
    failed = [record["check"] for record in by_opcheck.records.values() if record["operator"] == name]
    assert check in failed
    bad = {
        r["check"] for r in by_opcheck.records.values() if r["operator"] == name and r["outcome"] in ("failed", "error")
    }
    assert bad == {check}
