"""The JSON report on disk."""

from __future__ import annotations

import json
import resource
from contextlib import contextmanager

import pytest

from opcheck.report.json_report import JsonReport
from opcheck.report.model import Run

RUN = Run(
    opcheck="1", torch="2", python="3", platform="Linux x86_64", engine="batched", seed=0, started="now", complete=False
)  # fmt: skip
ENDED = RUN.model_copy(update={"complete": True, "seconds": 1.5})


def record(name, **keys):
    return {"id": name, "outcome": "passed", **keys, "run": 0}


def records(path):
    return json.loads(path.read_text())["records"]


def header(path):
    (run,) = json.loads(path.read_text())["runs"]
    return run["complete"], run["seconds"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "report.json"


def test_it_begins_empty_in_place_of_an_older_one(path):
    path.parent.mkdir()
    path.write_text("[{}, {}]")
    JsonReport(path, RUN)
    assert records(path) == []


def test_it_is_whole_after_each_record(path):
    report = JsonReport(path, RUN)
    for count in range(1, 5):
        report.add(record(f"case {count}", message='several\nlines, "quotes" and ünïcode'))
        found = records(path)
        assert [each["id"] for each in found] == [f"case {n}" for n in range(1, count + 1)]
        assert found[-1]["message"] == 'several\nlines, "quotes" and ünïcode'


def test_a_record_has_a_line(path):
    report = JsonReport(path, RUN)
    for name in "ab":
        report.add(record(name, message="several\nlines"))
    assert [line[:9] for line in path.read_text().splitlines()[-3:]] == ['{"id": "a', '{"id": "b', "]}"]


def test_a_later_record_of_a_case_replaces_the_first(path):
    report = JsonReport(path, RUN)
    for name, outcome in (("a", "error"), ("b", "passed"), ("a", "passed"), ("c", "failed")):
        report.add(record(name, outcome=outcome))
    found = {each["id"]: each["outcome"] for each in records(path)}
    assert found == {"a": "passed", "b": "passed", "c": "failed"}


def test_a_file_that_somebody_takes_away_is_written_again(path):
    report = JsonReport(path, RUN)
    report.add(record("a"))
    path.unlink()
    report.add(record("b"))
    assert [each["id"] for each in records(path)] == ["a", "b"]


def test_nothing_else_is_left_behind(path):
    report = JsonReport(path, RUN)
    report.add(record("a"))
    report.add(record("a"))
    assert report.finish() == ""
    assert [each.name for each in path.parent.iterdir()] == ["report.json"]


def test_what_is_no_regular_file_is_left_alone(tmp_path):
    with pytest.raises(OSError, match="is a folder"):
        JsonReport(tmp_path, RUN)


def test_many_records_take_no_longer_than_a_few(path):
    report = JsonReport(path, RUN)
    for number in range(3000):
        report.add(record(str(number), message="x" * 1000))
    assert len(records(path)) == 3000


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
    return [each["id"] for each in records(path)]


class TestFullDisk:
    def test_what_was_written_stays_whole(self, path):
        report = JsonReport(path, RUN)
        with room_for(path.stat().st_size + 960):
            for number in range(20):
                report.add(record(str(number), message="x" * 100))
                assert names(path) == [str(n) for n in range(min(number + 1, 6))]
            assert report.finish() == f"the report {path} is incomplete: 14 of 20 records are missing: File too large"

    def test_a_record_that_fits_in_part_leaves_nothing_behind(self, path):
        report = JsonReport(path, RUN)
        report.add(record("a"))
        before = path.read_bytes()
        for room in range(len(before), len(before) + 100, 7):
            with room_for(room):
                report.add(record("b", message="x" * 200))
                assert path.read_bytes() == before

    def test_what_is_missing_is_written_once_there_is_room(self, path):
        report = JsonReport(path, RUN)
        with room_for(path.stat().st_size + 100):
            for name in "abc":
                report.add(record(name, message="x" * 40))
            assert names(path) == ["a"]
        report.add(record("d"))
        assert names(path) == list("abcd")
        assert report.finish() == ""

    def test_a_later_record_of_a_case_is_in_no_file_twice(self, path):
        report = JsonReport(path, RUN)
        report.add(record("a"))
        with room_for(path.stat().st_size + 20):
            report.add(record("a", message="x" * 60))
            report.add(record("b"))
        assert records(path) == [record("a")]
        report.add(record("c"))
        assert report.finish() == ""
        assert records(path) == [record("a", message="x" * 60), record("b"), record("c")]

    def test_a_folder_that_is_gone_and_cannot_be_made_again_is_told(self, path):
        report = JsonReport(path, RUN)
        path.unlink()
        path.parent.rmdir()
        path.parent.write_text("a file")
        report.add(record("a"))
        assert report.finish() == f"the report {path} is incomplete: 1 of 1 records are missing: File exists"


def test_a_link_stays_a_link(path, tmp_path):
    path.parent.mkdir()
    path.symlink_to(tmp_path / "real.json")
    JsonReport(path, RUN).add(record("a"))
    assert path.is_symlink()
    assert names(tmp_path / "real.json") == ["a"]


class TestHeader:
    def test_a_run_is_not_complete_before_its_end(self, path):
        report = JsonReport(path, RUN)
        report.add(record("a"))
        report.begin(RUN.model_copy(update={"seconds": 0.5}))
        assert (header(path), names(path)) == ((False, 0.5), ["a"])
        assert report.finish(ENDED) == ""
        assert (header(path), names(path)) == ((True, 1.5), ["a"])

    def test_a_run_whose_records_are_missing_never_ends(self, path):
        report = JsonReport(path, RUN)
        with room_for(path.stat().st_size):
            report.add(record("a"))
            assert "1 of 1 records are missing" in report.finish(ENDED)
        assert (header(path), names(path)) == ((False, None), [])

    def test_an_end_that_finds_no_room_is_told(self, path):
        report = JsonReport(path, RUN)
        report.add(record("a"))
        with room_for(path.stat().st_size - 20):
            assert report.finish(ENDED) == f"the report {path} is incomplete: File too large"
        assert (header(path), names(path)) == ((False, None), ["a"])

    def test_records_follow_a_header_that_has_grown(self, path):
        report = JsonReport(path, RUN)
        report.add(record("a"))
        report.begin(RUN.model_copy(update={"command": ["opcheck", "run", "x" * 500]}))
        report.add(record("b"))
        assert names(path) == ["a", "b"]
