"""Says why a report is not the whole picture: a run that did not end, a missing shard, a file without sense."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from opcheck.report.model import Report, Run
from opcheck.report.shards import groups, trouble


def lacks(report: Report) -> list[str]:
    """Return what a report lacks, one line each; nothing if every selected case has a record."""
    return list(_lacks(report))


def _lacks(report: Report) -> Iterator[str]:
    if report.cut_off:
        yield "its end is missing: the file was cut off"
    if not report.records:
        yield "it has no record of any case"
    yield from (f"a report could not be read: {line}" for line in report.unread)
    counts = Counter(record.run for record in report.records)
    for index, run in enumerate(report.runs):
        if not run.complete and not report.cut_off:
            yield f"{_named(run, counts[index])} {_ending(run, counts[index])}"
    for index, run in enumerate(report.runs):
        if run.complete and not run.shard and not run.cases and not counts[index] and report.records:
            yield f"{_named(run, 0)} has no record of any case"
        elif run.complete and not run.shard and run.cases not in (None, counts[index]):
            there = f"{counts[index]} of {run.cases} cases"
            yield f"the run with torch {run.torch}, begun {run.started}, has records of {there}"
    for members in groups(report.runs):
        found = trouble(report.runs, members, counts)
        if found:
            one = report.runs[members[0]]
            yield f"of the run with torch {one.torch}, python {one.python} on {one.platform}, {found}"


def _named(run: Run, records: int) -> str:
    """Return what to call a run. One without records shows nowhere else, so that its devices are named."""
    what = f"shard {run.shard} of the run" if run.shard else "the run"
    devices = ", ".join(device.name for device in run.devices)
    on = f" on {devices}" if devices and not records else ""
    return f"{what}{on} with torch {run.torch}, begun {run.started},"


def _ending(run: Run, records: int) -> str:
    if run.seconds is None:
        return "did not come to its end"
    is_early = run.cases is None and not records
    return "ended before its cases were known" if is_early else "has no record of some of its cases"
