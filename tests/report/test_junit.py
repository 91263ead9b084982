"""The names of test cases in the JUnit report."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from opcheck.report.junit import JUnitReport

WRITTEN = """<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests"><testsuite name="pytest">
<testcase classname="{}" name="{}" time="0.1"><failure message="é &lt;">text</failure></testcase>
<testcase classname="tests.test_own.TestIt" name="test_own[a::b]" time="0.1" /></testsuite></testsuites>
"""

NODE = "specs/good.toml::demo.double[inplace]::backward[cpu-float64]"
NAME = "demo.double[inplace]::backward[cpu-float64]"


def test_looking_whether_it_can_be_written_leaves_nothing_behind(tmp_path):
    JUnitReport(tmp_path / "deep/er/report.xml")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "report.xml").write_text("older")
    JUnitReport(tmp_path / "report.xml")
    assert (tmp_path / "report.xml").read_text() == "older"


def test_what_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "report.xml", tmp_path / "file" / "deep" / "report.xml"):
        with pytest.raises(OSError, match=r"is a folder|Not a directory"):
            JUnitReport(path)


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
    report = JUnitReport(path)
    report.add(NODE, NAME)
    path.write_text(WRITTEN.format(classname, name))
    assert report.finish() == ""
    suites = ElementTree.parse(path).getroot()
    own, other = suites.iter("testcase")
    assert (own.get("classname"), own.get("name"), own.get("time")) == ("specs.good", NAME, "0.1")
    assert (own[0].get("message"), own[0].text) == ("é <", "text")
    assert (other.get("classname"), other.get("name")) == ("tests.test_own.TestIt", "test_own[a::b]")
    assert suites.get("name") == "pytest tests"
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_that_was_cut_off_is_told_and_left_alone(tmp_path):
    path = tmp_path / "report.xml"
    report = JUnitReport(path)
    report.add(NODE, NAME)
    path.write_text(WRITTEN[:-30])
    assert report.finish().startswith(
        f"the report {path} is incomplete: its tests do not have the names of the cases: "
    )
    assert path.read_text() == WRITTEN[:-30]


def test_what_is_no_file_is_left_alone(tmp_path):
    path = tmp_path / "report.xml"
    path.symlink_to("/dev/null")
    report = JUnitReport(path)
    report.add(NODE, NAME)
    assert report.finish() == ""
    assert path.is_symlink()
