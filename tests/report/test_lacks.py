"""What a report lacks."""

from __future__ import annotations

from report_files import record, report, run

from opcheck.report.lacks import lacks


def test_a_whole_report_lacks_nothing():
    assert lacks(report(record("a"))) == []


def test_one_without_records():
    assert lacks(report()) == ["it has no record of any case"]
    assert lacks(report(runs=[])) == ["it has no record of any case"]


def test_one_that_was_cut_off():
    assert lacks(report(record("a")).cut()) == ["its end is missing: the file was cut off"]


def test_runs_that_were_interrupted_or_killed():
    runs = [run(complete=False), run(complete=False, seconds=None), run(complete=False, shard="1/1")]
    begin = "the run with torch 2.13.0, begun 2026-01-01T00:00:00+00:00,"
    assert lacks(report(record("a"), runs=runs)) == [
        f"{begin} has no record of some of its cases",
        f"{begin} did not come to its end",
        f"shard 1/1 of {begin} has no record of some of its cases",
    ]


def test_missing_shards():
    assert lacks(report(record("a"), runs=[run(shard="8/8")]))[0].startswith(
        "shards 1/8, 2/8, 3/8, 4/8, 5/8, 6/8, 7/8 are"
    )
