"""The example project, as its README says: `opcheck run` and `pytest` find the same mistakes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "custom_op"
REPORT = ("--report-json", "report.json")


@pytest.fixture(scope="module")
def runs(shared):
    """Outcomes by `opcheck run` and by `pytest`."""

    def copied(project):
        shutil.rmtree(project.folder)
        shutil.copytree(EXAMPLE, project.folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        return project

    opcheck = shared("custom_opcheck", lambda project: copied(project).run("opcheck", "run", *REPORT))
    options = ("specs", "-q", "--opcheck-report-json", "report.json")
    return opcheck, shared("custom_pytest", lambda project: copied(project).run("pytest", *options))


def test_both_ways_agree_case_by_case(runs):
    by_opcheck, by_pytest = runs
    assert len(by_opcheck.outcomes) > 80
    assert by_pytest.outcomes == by_opcheck.outcomes
    assert (by_opcheck.code, by_pytest.code) == (1, 1)


def test_the_right_operators_pass(runs):
    for name in ("softops.squareplus", "softops.logcosh"):
        own = {case: outcome for case, outcome in runs[0].outcomes.items() if case.startswith(f"{name}::")}
        bad = {case: outcome for case, outcome in own.items() if outcome not in ("passed", "xfailed")}
        assert all("::fwd_over_fwd[" in case and outcome == "skipped" for case, outcome in bad.items()), bad


@pytest.mark.parametrize(
    ("name", "check"), [("softops.wrong_squareplus", "rev_over_rev"), ("softops.wrong_logcosh", "backward")]
)
def test_a_wrong_operator_fails_under_the_check_that_should_catch_it(runs, name, check):
    failed = [record["check"] for record in runs[0].records.values() if record["operator"] == name]
    assert check in failed
    bad = {
        r["check"] for r in runs[0].records.values() if r["operator"] == name and r["outcome"] in ("failed", "error")
    }
    assert bad == {check}
