"""Says why a report is not the whole picture: a run that did not end, a missing shard, a file that cannot be read."""

from __future__ import annotations

from opcheck.report.model import Report, Run
from opcheck.report.shards import groups, problems
from opcheck.text import n_cases


def gaps(report: Report) -> list[str]:
    """Return why a report is incomplete, one line each; nothing if every selected case has a record."""
    is_empty = not report.records
    lines = ["it has no record of any case"] if is_empty else []
    lines += [f"could not be read: {line}" for line in report.unread]
    lines += [f"{_name(run)} {gap}" for run in report.runs if (gap := _gap(run)) and not (is_empty and run.complete)]
    for shards in groups(report.runs):
        one, why = shards[0], "; ".join(problems(shards, report.runs))
        lines += [f"of the run with torch {one.torch}, python {one.python} on {one.platform}, {why}"] if why else []
    return lines


def _gap(run: Run) -> str:
    """Return what a run alone does not have; an empty string if it has all."""
    if run.seconds is None:
        return f"did not come to its end: it has {n_cases(len(run.records))}"
    if not run.complete:
        is_early = run.cases is None and not run.records
        return "ended before its cases were known" if is_early else "has no record of some of its cases"
    if run.shard:
        return ""  # it does not say how many of the cases are its own
    if not run.cases and not run.records:
        return "has no record of any case"
    return "" if run.cases in (None, len(run.records)) else f"has records of {len(run.records)} of {run.cases} cases"


def _name(run: Run) -> str:
    """Return what to call a run. One without records shows nowhere else, so that its devices are named."""
    what = f"shard {run.shard} of the run" if run.shard else "the run"
    on = f" on {', '.join(run.devices)}" if run.devices and not run.records else ""
    return f"{what}{on} with torch {run.torch}, begun {run.started},"
