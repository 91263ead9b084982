"""Merges reports: of several devices, versions and machines, and of the shards of one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from opcheck.report.makeup import Makeup, makeup
from opcheck.report.model import Record, Report, Run
from opcheck.report.shards import folded, groups, shard_of, trouble
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
    """Return one report of all runs. The shards of a run become one run if all of them are there.

    reports: each with the name of its file. unread: why others could not be read.
    Raises Duplicates if a case is there twice in runs that do not differ.
    """
    runs: list[Run] = []
    records: list[Record] = []
    lost = [*unread]
    seen: dict[tuple[Makeup, str], str] = {}
    twice: list[tuple[str, str, str]] = []
    for name, report in reports:
        made: dict[tuple[int, str], Makeup] = {}
        for record in report.records:
            place = record.run, record.device
            if place not in made:
                made[place] = makeup(report.runs[record.run], record.device)
            key = made[place], record.id
            if key in seen:
                twice.append((record.id, seen[key], name))
            seen[key] = name
        records += [_moved(record, record.run + len(runs)) for record in report.records]
        runs += report.runs
        lost += report.unread
    if twice:
        raise Duplicates(twice)
    return _with_whole_runs(runs, records).model_copy(update={"unread": lost})


def _moved(record: Record, run: int) -> Record:
    return record if record.run == run else record.model_copy(update={"run": run})


def _with_whole_runs(runs: Sequence[Run], records: Sequence[Record]) -> Report:
    """Return a report in which the shards of each run whose shards are all there are one run."""
    counts = Counter(record.run for record in records)
    replaced: dict[int, Run] = {}
    gone: dict[int, int] = {}
    """The first shard of the run that a shard has become a part of."""
    for members in groups(runs):
        ordered = sorted(members, key=lambda index: shard_of(runs[index]))
        has_ended = all(runs[index].complete for index in members)  # else each is told by its number
        is_whole = has_ended and not trouble(runs, members, counts)
        whole = folded([runs[index] for index in ordered]) if is_whole else None
        if whole is not None:
            replaced[members[0]] = whole
            gone |= dict.fromkeys(members[1:], members[0])
    kept = [index for index in range(len(runs)) if index not in gone]
    places = {index: place for place, index in enumerate(kept)}
    places |= {index: places[first] for index, first in gone.items()}
    return Report(
        runs=[replaced.get(index, runs[index]) for index in kept],
        records=[_moved(record, places[record.run]) for record in records],
    )
