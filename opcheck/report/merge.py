"""Merges reports: of several devices, versions and machines, and of the shards of one run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opcheck.report.conditions import Conditions, conditions_of
from opcheck.report.model import Report
from opcheck.report.shards import joined
from opcheck.spec.problems import SpecError
from opcheck.text import printable

MOST = 5
"""The most cases that an error names."""


class Duplicates(SpecError):
    """Cases that are in two reports, although their runs were made with the same versions, device and settings."""

    def __init__(self, twice: Sequence[tuple[str, str, str]]) -> None:
        super().__init__([])
        lines = [f"{printable(case)} is in {first} and in {second}" for case, first, second in twice[:MOST]]
        more = len(twice) - MOST
        lines += [f"... and {more} more cases are there twice"] if more > 0 else []
        lines.append("their runs do not differ in versions, platform, device, engine, seed or overrides")
        self.args = ("\n".join(f"opcheck: {line}" for line in lines),)


def merge(reports: Iterable[tuple[str, Report]], unread: Iterable[str] = ()) -> Report:
    """Return one report of all runs, one after another. The shards of a run become one if all of them are there.

    reports: each with the name of its file. unread: why others could not be read.
    Raises Duplicates if a case is there twice in runs that do not differ.
    """
    merged = Report([], [*unread])
    homes: dict[tuple[Conditions, str], str] = {}
    twice: list[tuple[str, str, str]] = []
    for name, report in reports:
        for run in report.runs:
            conditions = conditions_of(run)
            for record in run.records:
                key = conditions[record.device], record.id
                if key in homes:
                    twice.append((record.id, homes[key], name))
                homes[key] = name
        merged.runs += report.runs
        merged.unread += report.unread
    if twice:
        raise Duplicates(twice)
    return Report(joined(merged.runs), merged.unread)
