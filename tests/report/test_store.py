"""The file of a report: written line by line, and read back."""

from __future__ import annotations

import json
import os
import resource
from contextlib import contextmanager, suppress
from pathlib import Path

import jsonschema
import pytest
from report_files import lines, record, report, run, write_lines

from opcheck.report.content import End, Header, json_schema
from opcheck.report.merge import gaps
from opcheck.report.store import ReportFile, read, read_durations, write
from opcheck.spec.problems import RequestError

HEADER = Header(opcheck="1", torch="2", python="3", platform="Linux", engine="batched", seed=0, started="now")
END = End(complete=True, seconds=1.5, cases=2)


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "deep" / "report.json"


@pytest.fixture
def file(path):
    file = ReportFile(path)
    file.append(HEADER)
    return file


def ids(path):
    return [one.id for one in read(path).records]


class TestWriting:
    def test_it_begins_empty_in_place_of_an_older_one(self, path):
        path.parent.mkdir()
        path.write_text("[{}, {}]")
        ReportFile(path)
        assert path.read_bytes() == b""

    def test_a_case_has_a_line_as_soon_as_it_has_ended(self, path, file):
        for count in range(1, 5):
            file.append(record(f"case {count}", message='several\nlines, "quotes" and ünïcode'))
            assert len(path.read_text().splitlines()) == 1 + count
            assert ids(path) == [f"case {n}" for n in range(1, count + 1)]
        assert read(path).records[-1].message == 'several\nlines, "quotes" and ünïcode'

    def test_what_has_ended_says_so(self, path, file):
        file.append(record("a"))
        assert [one.seconds for one in read(path).runs] == [None]
        file.append(END)
        assert file.close() == ""
        (whole,) = read(path).runs
        assert (whole.complete, whole.seconds, whole.cases) == (True, 1.5, 2)

    def test_a_later_line_of_a_case_replaces_the_first(self, path, file):
        for name, outcome in (("a", "error"), ("b", "passed"), ("a", "passed"), ("c", "failed")):
            file.append(record(name, outcome))
        assert {one.id: one.outcome for one in read(path).records} == {"a": "passed", "b": "passed", "c": "failed"}

    def test_a_file_that_somebody_takes_away_is_there_in_the_end(self, path, file):
        file.append(record("a"))
        path.unlink()
        path.parent.rmdir()
        file.append(record("b"))
        assert file.close() == ""
        assert ids(path) == ["a", "b"]
        assert [each.name for each in path.parent.iterdir()] == ["report.json"]

    def test_a_folder_that_cannot_be_made_again_is_told(self, path, file):
        path.unlink()
        path.parent.rmdir()
        path.parent.write_text("a file")
        assert file.close().startswith(f"the report {path} is incomplete: ")

    def test_a_folder_is_no_file(self, tmp_path):
        with pytest.raises(OSError, match="Is a directory"):
            ReportFile(tmp_path)

    def test_a_link_stays_a_link(self, path, tmp_path):
        path.parent.mkdir()
        path.symlink_to(tmp_path / "real.json")
        file = ReportFile(path)
        file.append(HEADER)
        assert path.is_symlink()
        assert len(lines(tmp_path / "real.json")) == 1


class TestPipes:
    @pytest.fixture
    def pipe(self, tmp_path):
        """The path of a pipe, and a descriptor that reads it."""
        os.mkfifo(tmp_path / "pipe")
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        yield tmp_path / "pipe", reader
        with suppress(OSError):
            os.close(reader)

    def test_one_gets_each_line_at_once(self, pipe):
        path, reader = pipe
        file = ReportFile(path)
        case = record("a")
        for line, data in ((HEADER, HEADER.model_dump()), (case, case.record()), (END, END.model_dump())):
            file.append(line)
            assert json.loads(os.read(reader, 10_000)) == data
        assert file.close() == ""
        assert path.is_fifo()

    def test_one_that_nobody_reads_any_more_is_told_once(self, pipe):
        path, reader = pipe
        file = ReportFile(path)
        file.append(HEADER)
        os.close(reader)
        file.append(record("a"))
        file.append(END)
        assert file.close() == f"the report {path} is incomplete: 2 of 3 lines are missing: Broken pipe"


@contextmanager
def room_for(size):
    """Within it, no file may grow over a size, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TestFullDisk:
    def test_what_was_written_can_be_read_and_what_is_missing_is_told(self, path, file):
        with room_for(path.stat().st_size + 3000):
            for number in range(20):
                file.append(record(str(number), message="x" * 100))
                found = ids(path)
                assert found == [str(n) for n in range(len(found))]
            file.append(END)
            told = file.close()
        assert 2 < len(found) < 20
        assert told == f"the report {path} is incomplete: {21 - len(found)} of 22 lines are missing: File too large"
        assert gaps(read(path))

    def test_what_is_missing_is_written_once_there_is_room(self, path, file):
        with room_for(path.stat().st_size + 600):
            for name in "abc":
                file.append(record(name, message="x" * 40))
            assert ids(path) == ["a"]
        file.append(record("d"))
        assert ids(path) == list("abcd")
        file.append(END)
        assert file.close() == ""
        assert read(path).runs[0].complete

    def test_a_run_whose_lines_are_missing_never_ends(self, path, file):
        with room_for(path.stat().st_size):
            file.append(record("a"))
            file.append(END)
            assert "2 of 3 lines are missing" in file.close()
        assert (read(path).runs[0].seconds, ids(path)) == (None, [])


class TestReading:
    def test_what_was_written_is_read(self, path):
        whole = report(
            record("a", fields={"x": [1, {"y": None}]}), record("b", run=1), runs=[run(), run(seed=3)], unread=["c"]
        )
        write(whole, path)
        found = read(path)
        assert [one.model_dump() for one in found.runs] == [one.model_dump() for one in whole.runs]
        assert found.unread == ["c"]

    def test_files_may_be_put_one_after_another(self, path):
        path.parent.mkdir()
        parts = [report(record(f"a{n}"), runs=[run(shard=f"{n}/2")]) for n in (1, 2)]
        for number, part in enumerate([*parts, report(record("b"), runs=[run(seed=3)])]):
            write(part, path.parent / str(number))
        path.write_bytes(b"".join((path.parent / name).read_bytes() for name in "012"))
        assert [(one.shard, len(one.records)) for one in read(path).runs] == [("", 2), ("", 1)]
        assert gaps(read(path)) == []

    def test_every_beginning_has_the_cases_that_are_whole(self, path):
        write(report(record("a"), record("b", fields={"x": {"y": [1, 2]}, "z": "text"})), path)
        text = path.read_text()
        begins = [0, *(place + 1 for place, sign in enumerate(text) if sign == "\n")]
        for length in range(begins[1], begins[3] + 20):
            path.write_text(text[:length])
            found = read(path)
            whole = sum(length >= end - 1 for end in begins[2:4])
            assert [one.id for one in found.records] == ["a", "b"][:whole], text[:length]
            assert [one.seconds for one in found.runs] == [None]
            is_cut = length not in (*begins, *(begin - 1 for begin in begins))
            assert found.unread == [f"deep/report.json: line {2 + whole} is cut off"] * is_cut

    def test_a_line_that_is_cut_off_after_a_whole_run_counts(self, path):
        write(report(record("a")), path)
        path.write_text(path.read_text() + '{"schema": "2')
        assert gaps(read(path)) == ["could not be read: deep/report.json: line 4 is cut off"]


@pytest.fixture
def refused(path):
    """Return a function that returns why a text or some lines are no report."""
    path.parent.mkdir()

    def message(content):
        if isinstance(content, str):
            path.write_text(content)
        else:
            write_lines(path, content)
        with pytest.raises(RequestError) as caught:
            read(path)
        told = str(caught.value)
        assert len(told.splitlines()) == 1
        return told.removeprefix("deep/report.json: ")

    return message


@pytest.fixture
def own(path):
    """The lines of a report of this version."""
    write(
        report(record("a"), record("b", "failed"), runs=[run(left_out=[{"device": "x", "reason": "y", "cases": 1}])]),
        path,
    )
    path.parent.rename(path.parent.parent / "made")
    return lines(path.parent.parent / "made" / path.name)


class TestVersions:
    def test_a_newer_minor_version_may_have_further_keys(self, own, path):
        for line in own:
            line["further"] = {"a": 1}
        own[0]["schema"] = "2.7"
        path.parent.mkdir()
        write_lines(path, own)
        assert ids(path) == ["a", "b"]

    @pytest.mark.parametrize("number", [0, 2, 3])
    def test_this_version_may_not(self, own, refused, number):
        own[number]["further"] = 1
        assert refused(own).startswith(f"is not a report of opcheck: line {number + 1}")
        assert refused(own).endswith(": further: unknown key")

    def test_nor_within_a_line(self, own, refused):
        own[3]["left_out"][0]["further"] = 1
        assert refused(own) == "is not a report of opcheck: line 4: left_out: 0: further: unknown key"

    def test_another_major_version_is_refused(self, own, refused):
        own[0] = {"schema": "3.0"}
        assert refused(own) == "is of version 3.0 of the format; expected 2.x: update opcheck to read it"

    def test_so_is_an_older_one(self, refused):
        told = "is of version 1.1 of the format; expected 2.x: run the cases again with --report-json"
        assert refused([{"schema": "1.1"}]) == told

    @pytest.mark.parametrize("schema", [1, "", "1", "one", "1.0.0", None, "1.-1"])
    def test_what_is_no_version_is_refused(self, refused, schema):
        assert refused([{"schema": schema}]).startswith(f'"schema" is {schema!r}; expected a version')


class TestMistakes:
    @pytest.mark.parametrize("text", ["{}", '{"runs": []}', "1", '"schema"', "null", "[]", '[{"a": 1}]'])
    def test_what_is_no_report_is_told(self, refused, text):
        assert refused(text).startswith('has no "schema": it is not a report of opcheck')

    @pytest.mark.parametrize("text", ["no JSON", "{", "{\n}", "[1", "\x00\x01", '{"schema": "2'])
    def test_so_is_what_is_no_json(self, refused, text):
        assert refused(text).startswith("is not a report of opcheck: line 1 is not JSON: ")

    def test_no_text_at_all(self, refused):
        assert refused("") == refused(" \n") == "is empty"

    def test_what_is_damaged_in_the_middle(self, own, refused):
        text = "".join(json.dumps(line) + "\n" for line in own)
        middle = text.index('"failed"')
        assert refused(text[:middle] + "!" + text[middle:]).startswith("is not a report of opcheck: line 3 is not JSON")
        assert refused(text[:middle] + text[text.rindex("{") :]).startswith("is not a report of opcheck: line 3 is not")
        assert refused(text + "}").startswith("is not a report of opcheck: line 5 is not JSON: ")

    def test_a_line_of_something_else(self, own, refused):
        own.insert(2, {"a": 1})
        assert refused(own) == "is not a report of opcheck: line 3 is neither a case nor the end of a run"

    def test_the_case_is_named(self, own, refused):
        own[2]["outcome"] = "maybe"
        assert refused(own).startswith("is not a report of opcheck: line 3 (\"b\"): outcome: Input should be 'passed'")

    def test_a_case_without_a_header(self, own, refused):
        assert refused(own[1:]).startswith("line 1 belongs to no run; expected a header before it")
        assert refused([*own, own[1]]).startswith("line 5 belongs to no run; expected a header before it")

    def test_a_file_that_is_not_there_or_no_file(self, tmp_path, path):
        for place, why in ((path, "No such file or directory"), (tmp_path, "Is a directory")):
            with pytest.raises(RequestError, match=f"cannot be read: {why}"):
                read(place)


def test_the_schema_accepts_each_kind_of_line(path):
    write(report(record("a", "failed", fields={"x": 1}), unread=["b.json: is empty"]), path)
    validator = jsonschema.Draft202012Validator(json_schema())
    header, case, end, unread = lines(path)
    assert all(map(validator.is_valid, (header, case, end, unread)))
    assert validator.is_valid({**header, "schema": "2.4", "further": 1})
    for wrong in ({}, {**header, "schema": 1}, {**case, "outcome": "maybe"}, {**end, "cases": "two"}, {"unread": 1}):
        assert not validator.is_valid(wrong)
    assert all("description" in one for kind in json_schema()["$defs"].values() for one in kind["properties"].values())


def test_durations_are_those_of_the_cases_that_ran(tmp_path: Path) -> None:
    vmap = "torch.sin::vmap[cuda-float64]"
    ran = [record("torch.sin::vmap[cpu-float64]", seconds=3.0), record("torch.sin::backward[cpu-float64]", "failed")]
    absent = record(vmap, "skipped", seconds=0.0)
    write(report(*ran, absent), tmp_path / "old.json")
    durations = read_durations(tmp_path / "old.json")
    assert durations.means == {ran[0].id: 3.0, ran[1].id: 0.25, "vmap": 3.0, "backward": 0.25, "": 1.625}
    assert durations.operators == {"torch.sin"}
    assert durations.source == str(tmp_path / "old.json")


def test_durations_of_what_is_no_report_are_refused(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{}")
    with pytest.raises(RequestError, match="it is not a report of opcheck"):
        read_durations(tmp_path / "old.json")
