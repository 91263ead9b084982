"""Reading report files."""

from __future__ import annotations

import json

import pytest
from report_files import record, report, run

from opcheck.report.model import Report
from opcheck.report.reading import ReportError, read
from opcheck.report.writing import write


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "report.json"


@pytest.fixture
def written(path):
    def write_text(text):
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return path

    return write_text


@pytest.fixture
def refused(written):
    def message(text):
        with pytest.raises(ReportError) as caught:
            read(written(text))
        return str(caught.value)

    return message


def data(**keys):
    return report(record("a"), record("b", outcome="failed")).model_dump(mode="json") | keys


def test_what_was_written_is_read(path):
    whole = report(record("a", fields={"x": [1, {"y": None}]}), record("b", run=1), runs=[run(), run(seed=3)])
    write(whole, path)
    assert read(path) == whole
    assert not read(path).cut_off


def test_a_record_has_a_line(path):
    write(report(record("a", message="several\nlines"), record("b")), path)
    assert [line[:9] for line in path.read_text().splitlines()[-3:]] == ['{"id": "a', '{"id": "b', "]}"]


class TestVersions:
    def test_a_newer_minor_version_may_have_further_keys(self, written):
        newer = data(schema="1.2", further=1)
        newer["records"][0]["further"] = newer["runs"][0]["further"] = {"a": 1}
        assert [one.id for one in read(written(newer)).records] == ["a", "b"]

    @pytest.mark.parametrize("part", ["report", "run", "record", "device"])
    def test_this_version_may_not(self, refused, part):
        own = data()
        parts = {"report": own, "run": own["runs"][0], "record": own["records"][1]}
        {**parts, "device": own["runs"][0]["devices"][0]}[part]["further"] = 1
        assert refused(own).endswith("further: unknown key")

    def test_a_newer_major_version_is_refused(self, refused):
        told = "report.json: is of version 2.0 of the format; expected 1.x: update opcheck to read it"
        assert refused(data(schema="2.0", records=None)) == told

    def test_so_is_an_older_one(self, refused):
        assert "is of version 0.9 of the format; expected 1.x: run the cases again" in refused(data(schema="0.9"))

    @pytest.mark.parametrize("schema", [1, "", "1", "one", "1.0.0", None, "1.-1"])
    def test_what_is_no_version_is_refused(self, refused, schema):
        assert refused(data(schema=schema)).startswith(f'report.json: "schema" is {schema!r}; expected a version')

    @pytest.mark.parametrize("text", ["[]", '[{"id": "a", "outcome": "passed"}]'])
    def test_a_report_without_a_header_is_told_as_one(self, refused, text):
        assert refused(text).startswith("report.json: is a report without a header, of an earlier opcheck; run")


class TestCutOff:
    @pytest.fixture
    def text(self, path):
        write(report(record("a"), record("b", fields={"x": {"y": [1, 2]}, "z": "text"})), path)
        return path.read_text()

    def test_every_beginning_has_the_records_that_are_whole(self, text, written):
        starts = {name: text.index(f'{{"id": "{name}"') for name in "ab"}
        ends = {"a": starts["b"] - 2, "b": text.rindex("}\n]}") + 1}
        for length in range(starts["a"] - 1, len(text.rstrip())):
            found = read(written(text[:length]))
            assert [one.id for one in found.records] == [name for name in "ab" if length >= ends[name]], text[:length]
            assert found.cut_off
            assert not any(one.complete for one in found.runs)

    def test_without_a_first_record_there_is_nothing_to_read(self, text, refused):
        begin = text.index('"records"')
        assert {refused(text[:length]) for length in range(text.index("runs"), begin)} == {
            "report.json: is cut off before its first record"
        }

    def test_one_that_is_written_in_another_way_is_read(self, path, written):
        text = json.dumps(data(), indent=2)
        found = read(written(text[: text.rindex('"outcome"')]))
        assert [one.id for one in found.records] == ["a"]

    def test_what_is_damaged_in_the_middle_is_refused(self, text, refused):
        middle = text.index('"b"')
        assert refused(text[:middle] + "!" + text[middle:]).startswith("report.json: is not JSON: ")
        assert refused(text + "{").startswith("report.json: is not JSON: ")


class TestMistakes:
    @pytest.mark.parametrize("text", ["{}", '{"runs": []}', "1", '"schema"', "null", "[1]", '[{"a": 1}]'])
    def test_what_is_no_report_is_told(self, refused, text):
        assert refused(text).startswith('report.json: has no "schema": it is no report of opcheck')

    def test_no_text_at_all(self, refused):
        assert refused("") == refused(" \n") == "report.json: is empty"

    def test_the_record_is_named(self, refused):
        wrong = data()
        wrong["records"][1]["outcome"] = "maybe"
        assert refused(wrong).startswith(
            "report.json: is no report of opcheck: record 1 (\"b\"): outcome: Input should be 'passed'"
        )

    @pytest.mark.parametrize(
        ("records", "what"),
        [
            ([record("a"), record("a")], 'two records of "a" in the same run'),
            ([record("a", run=1)], 'the record of "a" is of run 1, but there are 1'),
        ],
    )
    def test_records_that_contradict_each_other_are_refused(self, refused, records, what):
        assert refused(data(records=[one.model_dump() for one in records])).endswith(what)

    def test_a_case_may_have_a_record_in_each_run(self):
        assert len(report(record("a"), record("a", run=1), runs=[run(), run()]).records) == 2

    def test_a_file_that_is_not_there_or_no_file(self, tmp_path, path):
        for place, why in ((path, "No such file or directory"), (tmp_path, "Is a directory")):
            with pytest.raises(ReportError, match=f"cannot be read: {why}"):
                read(place)


def test_the_schema_is_that_of_the_models():
    schema = Report.model_json_schema()
    assert schema["required"] == ["runs", "records"]
    assert "_cut_off" not in schema["properties"]
    assert all("description" in one for model in schema["$defs"].values() for one in model["properties"].values())
