"""A JUnit report made of a report."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from report_files import record, report, run

from opcheck.report.junit_file import write_junit
from opcheck.run.outcome import KINDS


@pytest.fixture
def written(tmp_path):
    def write(*records, **keys):
        write_junit(report(*records, **keys), tmp_path / "report.xml")
        return ElementTree.parse(tmp_path / "report.xml").getroot()

    return write


def test_each_outcome_has_the_element_that_readers_know(written):
    cases = written(*(record(kind, kind, message="all\nof it") for kind in KINDS)).iter("testcase")
    found = {case.get("name"): [(one.tag, one.get("type"), one.get("message")) for one in case] for case in cases}
    assert found == {
        "passed": [],
        "failed": [("failure", "failed", "why it failed")],
        "error": [("error", "error", "why it error")],
        "skipped": [("skipped", "pytest.skip", "why it skipped")],
        "xfailed": [("skipped", "pytest.xfail", "why it xfailed")],
        "xpassed": [("failure", "xpassed", "why it xpassed")],
        "inconclusive": [("failure", "inconclusive", "why it inconclusive")],
        "blocked": [("failure", "blocked", "why it blocked")],
    }


def test_a_suite_counts_its_cases(written):
    (suite,) = written(*(record(kind, kind) for kind in KINDS))
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped", "time")}
    assert counts == {"tests": "8", "failures": "4", "errors": "1", "skipped": "2", "time": "2.000"}


def test_each_run_is_a_suite_with_its_versions(written):
    suites = written(record("a"), record("a", run=1), runs=[run(), run(torch="2.14.1", complete=False)])
    assert [suite.get("name") for suite in suites] == ["opcheck, torch 2.13.0", "opcheck, torch 2.14.1"]
    assert [len(suite.findall("testcase")) for suite in suites] == [1, 1]
    properties = {one.get("name"): one.get("value") for one in suites[1].iter("property")}
    assert (properties["torch"], properties["complete"]) == ("2.14.1", "false")


def test_a_case_of_several_runs_has_a_name_in_each(written):
    runs = [run(), run(torch="2.14.1"), run(torch="2.14.1", python="3.12.0")]
    cases = written(*(record("a", run=index) for index in range(3)), record("b"), runs=runs).iter("testcase")
    assert [case.get("name") for case in cases] == [
        "a (cpu, torch 2.13.0, python 3.11.7)", "b", "a (cpu, torch 2.14.1, python 3.11.7)",
        "a (cpu, torch 2.14.1, python 3.12.0)",
    ]  # fmt: skip


def test_names_are_those_of_pytest(written):
    name = "demo.double[inplace]::backward[cpu-float64]"
    (case,) = written(record(name, file="specs/more/good.toml")).iter("testcase")
    assert case.attrib == {"classname": "specs.more.good", "name": name, "time": "0.250"}


def test_characters_that_xml_has_not_are_replaced(written):
    bad = record("a\x00b", "failed", reason="<&>\x1b[1m\ufffe", message="x\ty\nz\x07")
    (case,) = written(bad).iter("testcase")
    assert (case.get("name"), case[0].get("message")) == ("a\ufffdb", "<&>\ufffd[1m\ufffd")
    assert case[0].text == "x\ty\nz\ufffd"
