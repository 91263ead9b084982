"""Says why a report is not the whole picture: a run that did not come to its end, a shard that is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from opcheck.report.model import Report
from opcheck.report.shards import groups, trouble


def lacks(report: Report) -> list[str]:
    """Return what a report lacks, one line each; nothing if every selected case has a record."""
    return list(_lacks(report))


def _lacks(report: Report) -> Iterator[str]:
    if report.cut_off:
        yield "its end is missing: the file was cut off"
    if not report.records:
        yield "it has no record of any case"
    for run in report.runs:
        if not run.complete and not report.cut_off:
            what = f"shard {run.shard} of the run" if run.shard else "the run"
            how = "did not come to its end" if run.seconds is None else "has no record of some of its cases"
            yield f"{what} with torch {run.torch}, begun {run.started}, {how}"
    counts = Counter(record.run for record in report.records)
    for index, run in enumerate(report.runs):
        if run.complete and not run.shard and run.cases not in (None, counts[index]):
            there = f"{counts[index]} of {run.cases} cases"
            yield f"the run with torch {run.torch}, begun {run.started}, has records of {there}"
    for members in groups(report.runs):
        found = trouble(report.runs, members, counts)
        if found:
            one = report.runs[members[0]]
            yield f"of the run with torch {one.torch}, python {one.python} on {one.platform}, {found}"
