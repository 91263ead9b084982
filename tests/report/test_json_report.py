"""The JSON report on disk."""

from __future__ import annotations

import json
import resource
from contextlib import contextmanager

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
    report.add(record("a"))
    assert report.finish() == ""
    assert [each.name for each in path.parent.iterdir()] == ["report.json"]


def test_what_is_no_regular_file_is_left_alone(tmp_path):
    with pytest.raises(OSError, match="is not a regular file"):
        JsonReport(tmp_path)


def test_many_records_take_no_longer_than_a_few(path):
    report = JsonReport(path)
    for number in range(3000):
        report.add(record(str(number), message="x" * 1000))
    assert len(json.loads(path.read_text())) == 3000


@contextmanager
def room_for(size):
    """Within it, no file may grow over a size, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(path):
    return [each["id"] for each in json.loads(path.read_text())]


class TestFullDisk:
    def test_what_was_written_stays_whole(self, path):
        report = JsonReport(path)
        with room_for(1000):
            for number in range(20):
                report.add(record(str(number), message="x" * 100))
                assert names(path) == [str(n) for n in range(min(number + 1, 6))]
            assert report.finish() == f"the report {path} is incomplete: 14 of 20 records are missing: File too large"

    def test_a_record_that_fits_in_part_leaves_nothing_behind(self, path):
        report = JsonReport(path)
        report.add(record("a"))
        before = path.read_bytes()
        for room in range(len(before), len(before) + 100, 7):
            with room_for(room):
                report.add(record("b", message="x" * 200))
                assert path.read_bytes() == before

    def test_what_is_missing_is_written_once_there_is_room(self, path):
        report = JsonReport(path)
        with room_for(100):
            for name in "abc":
                report.add(record(name, message="x" * 40))
            assert names(path) == ["a"]
        report.add(record("d"))
        assert names(path) == list("abcd")
        assert report.finish() == ""

    def test_a_later_record_of_a_case_is_in_no_file_twice(self, path):
        report = JsonReport(path)
        report.add(record("a"))
        with room_for(50):
            report.add(record("a", message="x" * 60))
            report.add(record("b"))
        assert json.loads(path.read_text()) == [record("a")]
        report.add(record("c"))
        assert report.finish() == ""
        assert json.loads(path.read_text()) == [record("a", message="x" * 60), record("b"), record("c")]

    def test_a_folder_that_is_gone_and_cannot_be_made_again_is_told(self, path):
        report = JsonReport(path)
        path.unlink()
        path.parent.rmdir()
        path.parent.write_text("a file")
        report.add(record("a"))
        assert report.finish() == f"the report {path} is incomplete: 1 of 1 records are missing: File exists"


def test_a_link_stays_a_link(path, tmp_path):
    path.parent.mkdir()
    path.symlink_to(tmp_path / "real.json")
    JsonReport(path).add(record("a"))
    assert path.is_symlink()
    assert names(tmp_path / "real.json") == ["a"]
