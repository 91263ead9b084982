"""JUnit's XML: that of a report, and the names of test cases in pytest's."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from report_files import record, report, run

from opcheck.report.junit import check_writable, name_tests, rendered
from opcheck.running.outcome import KINDS

WRITTEN = """<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests"><testsuite name="pytest">
<testcase classname="{}" name="{}" time="0.1"><failure message="é &lt;">text</failure></testcase>
<testcase classname="tests.test_own.TestIt" name="test_own[a::b]" time="0.1" /></testsuite></testsuites>
"""

NODE = "specs/good.toml::demo.double[inplace]::backward[cpu-float64]"
NAME = "demo.double[inplace]::backward[cpu-float64]"


def test_looking_whether_it_can_be_written_leaves_nothing_behind(tmp_path):
    check_writable(tmp_path / "deep/er/report.xml")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "report.xml").write_text("older")
    check_writable(tmp_path / "report.xml")
    assert (tmp_path / "report.xml").read_text() == "older"


def test_what_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "report.xml", tmp_path / "file" / "deep" / "report.xml"):
        with pytest.raises(OSError, match=r"is a folder|Not a directory"):
            check_writable(path)


@pytest.mark.parametrize(
    ("classname", "name"),
    [
        ("specs.good.toml", "demo.double[inplace]::backward[cpu-float64]"),
        ("specs.good.toml.demo.double[inplace]", "backward[cpu-float64]"),
        ("specs.good.toml.demo", "double[inplace].backward[cpu-float64]"),
    ],
)
def test_a_case_has_its_id_for_a_name_wherever_pytest_cuts_it(tmp_path, classname, name):
    path = tmp_path / "report.xml"
    path.write_text(WRITTEN.format(classname, name))
    assert name_tests(path, {NODE: (NAME, "")}) == ""
    suites = ElementTree.parse(path).getroot()
    own, other = suites.iter("testcase")
    assert (own.get("classname"), own.get("name"), own.get("time")) == ("specs.good", NAME, "0.1")
    assert (own[0].get("message"), own[0].text) == ("é <", "text")
    assert (other.get("classname"), other.get("name")) == ("tests.test_own.TestIt", "test_own[a::b]")
    assert suites.get("name") == "pytest tests"
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_that_was_cut_off_is_told_and_left_alone(tmp_path):
    path = tmp_path / "report.xml"
    path.write_text(WRITTEN[:-30])
    assert name_tests(path, {NODE: (NAME, "")}).startswith(
        f"the report {path} is incomplete: its tests do not have the names of the cases: "
    )
    assert path.read_text() == WRITTEN[:-30]


def test_what_is_no_file_is_left_alone(tmp_path):
    path = tmp_path / "report.xml"
    path.symlink_to("/dev/null")
    assert name_tests(path, {NODE: (NAME, "")}) == ""
    assert path.is_symlink()


@pytest.fixture
def written(tmp_path):
    def parsed(*records, **keys):
        (tmp_path / "report.xml").write_bytes(rendered(report(*records, **keys)).encode())
        return ElementTree.parse(tmp_path / "report.xml").getroot()

    return parsed


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


def test_what_is_missing_is_an_error(written):
    own, missing = written(record("a"), runs=[run(seconds=None, complete=False)])
    assert (own.get("errors"), missing.get("errors")) == ("0", "1")
    (case,) = missing
    assert (case.get("classname"), case.get("name")) == ("opcheck", "the report is complete")
    assert case[0].tag == "error"
    assert case[0].get("message").startswith("incomplete: the run with torch 2.13.0, begun ")
    assert case[0].text.endswith(", did not come to its end: it has 1 case")


def test_a_suite_counts_its_cases(written):
    (suite,) = written(*(record(kind, kind) for kind in KINDS))
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped", "time")}
    assert counts == {"tests": "8", "failures": "4", "errors": "1", "skipped": "2", "time": "2.000"}


def test_each_run_is_a_suite_with_its_versions(written):
    suites = written(record("a"), record("a", run=1), runs=[run(), run(torch="2.14.1", complete=False)])
    names = ["opcheck, torch 2.13.0", "opcheck, torch 2.14.1", "opcheck, the report"]
    assert [suite.get("name") for suite in suites] == names
    assert [len(suite.findall("testcase")) for suite in suites] == [1, 1, 1]
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
