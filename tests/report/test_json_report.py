"""The JSON report on disk."""

from __future__ import annotations

import json

import pytest

from opcheck.report.json_report import JsonReport


def record(name, **keys):
    return {"id": name, "outcome": "passed", **keys}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "report.json"


def test_it_begins_empty_in_place_of_an_older_one(path):
    path.parent.mkdir()
    path.write_text("[{}, {}]")
    JsonReport(path)
    assert json.loads(path.read_text()) == []


def test_it_is_whole_after_each_record(path):
    report = JsonReport(path)
    for count in range(1, 5):
        report.add(record(f"case {count}", message='several\nlines, "quotes" and ünïcode'))
        found = json.loads(path.read_text())
        assert [each["id"] for each in found] == [f"case {n}" for n in range(1, count + 1)]
        assert found[-1]["message"] == 'several\nlines, "quotes" and ünïcode'


def test_a_record_has_a_line(path):
    report = JsonReport(path)
    for name in "ab":
        report.add(record(name, message="several\nlines"))
    assert len(path.read_text().splitlines()) == 4


def test_a_later_record_of_a_case_replaces_the_first(path):
    report = JsonReport(path)
    for name, outcome in (("a", "error"), ("b", "passed"), ("a", "passed"), ("c", "failed")):
        report.add(record(name, outcome=outcome))
    found = {each["id"]: each["outcome"] for each in json.loads(path.read_text())}
    assert found == {"a": "passed", "b": "passed", "c": "failed"}


def test_a_file_that_somebody_takes_away_is_written_again(path):
    report = JsonReport(path)
    report.add(record("a"))
    path.unlink()
    report.add(record("b"))
    assert [each["id"] for each in json.loads(path.read_text())] == ["a", "b"]


def test_nothing_else_is_left_behind(path):
    report = JsonReport(path)
    report.add(record("a"))
    report.write()
    assert [each.name for each in path.parent.iterdir()] == ["report.json"]


def test_what_is_no_regular_file_is_left_alone(tmp_path):
    with pytest.raises(OSError, match="is no regular file"):
        JsonReport(tmp_path)


def test_many_records_take_no_longer_than_a_few(path):
    report = JsonReport(path)
    for number in range(3000):
        report.add(record(str(number), message="x" * 1000))
    assert len(json.loads(path.read_text())) == 3000
