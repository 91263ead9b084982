"""Why a report is not the whole picture."""

from __future__ import annotations

from report_files import record, report, run

from opcheck.report.gaps import gaps


def test_a_whole_report_has_none():
    assert gaps(report(record("a"))) == []


def test_one_without_records():
    assert gaps(report()) == ["it has no record of any case"]
    assert gaps(report(runs=[])) == ["it has no record of any case"]


def test_runs_that_were_interrupted_or_killed():
    runs = [run(complete=False), run(complete=False, seconds=None), run(complete=False, shard="1/1")]
    begin = "the run with torch 2.13.0, begun 2026-01-01T00:00:00+00:00,"
    assert gaps(report(*(record("a", run=index) for index in range(3)), runs=runs)) == [
        f"{begin} has no record of some of its cases",
        f"{begin} did not come to its end: it has 1 case",
        f"shard 1/1 of {begin} has no record of some of its cases",
    ]


def test_a_run_without_a_record_names_its_devices():
    early = run(complete=False, devices=["cpu", "npu"])
    empty = run(cases=0, devices=["npu"])  # as an opcheck wrote it that took nothing for all
    tail = "with torch 2.13.0, begun 2026-01-01T00:00:00+00:00,"
    assert gaps(report(record("a"), runs=[run(), early, empty])) == [
        f"the run on cpu, npu {tail} ended before its cases were known",
        f"the run on npu {tail} has no record of any case",
    ]


def test_files_that_could_not_be_read():
    found = report(record("a"), unread=["b.json: is empty"])
    assert gaps(found) == ["could not be read: b.json: is empty"]


def test_missing_shards():
    (found,) = gaps(report(record("a"), runs=[run(shard="5/5")]))
    assert found == (
        "of the run with torch 2.13.0, python 3.11.7 on Linux x86_64, shards 1/5, 2/5, 3/5, 4/5 are missing"
    )


def test_records_that_are_not_there():
    (found,) = gaps(report(record("a"), runs=[run(cases=2)]))
    assert found.endswith(", has records of 1 of 2 cases")
    assert gaps(report(record("a"), runs=[run(cases=1)])) == []
