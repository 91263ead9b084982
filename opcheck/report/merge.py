"""Merges reports, joins the shards of a run, and finds what is missing."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from opcheck.report.content import Report, Run
from opcheck.report.labels import Conditions, conditions_of
from opcheck.spec.problems import RequestError
from opcheck.text import counted

SAME = (*(name for name in Conditions._fields if name != "details"), "selection")
"""The fields that are equal in all shards of a run, as well as `devices`."""

DIFFERENCES = {
    "specs": "the shards were planned from different specs ({}); rerun them from one commit",
    "planned": "the shards selected different cases ({}); rerun them with the same options",
}
"""The digests that are equal in all shards of a run, with the message if they are not."""

OPTIONS = {"--shard", "--opcheck-shard"}

MOST = 5
"""The maximum number of cases that an error lists."""


def merge(reports: Iterable[tuple[str, Report]], unread: Iterable[str] = ()) -> Report:
    """Return one report with all runs, in order. The shards of a run are joined if all of them are present.

    reports: pairs of the name of a file and its report. unread: why other files could not be read.
    Raises RequestError if a case occurs twice in runs under equal conditions.
    """
    merged = Report([], [*unread])
    homes: dict[tuple[Conditions, str], str] = {}
    twice: list[str] = []
    for name, report in reports:
        for run in report.runs:
            conditions = conditions_of(run)
            for record in run.records:
                key = conditions[record.device], record.id
                if key in homes:
                    twice.append(f"{record.id}: in both {homes[key]} and {name}")
                homes[key] = name
        merged.runs += report.runs
        merged.unread += report.unread
    if twice:
        rest = len(twice) - MOST
        more = [f"... and {counted(rest, 'more duplicate case')}"] if rest > 0 else []
        why = (
            "cannot merge reports of the same configuration: the versions, platform, device, engine, seed and "
            "overrides are equal; pass only one of them"
        )
        raise RequestError([*twice[:MOST], *more, why])
    return Report(joined(merged.runs), merged.unread)


def joined(runs: Sequence[Run]) -> list[Run]:
    """Return the runs, with the shards of a run joined if all are present and complete, and fit together."""
    whole: dict[int, Run | None] = {}
    divided = _divided(runs)
    for one in divided:
        # gaps() names the incomplete shards
        if one.has_ended and not any(one.problems(divided)) and (run := one.joined()):
            whole |= dict.fromkeys(map(id, one.shards)) | {id(one.shards[0]): run}
    return [run for run in (whole.get(id(run), run) for run in runs) if run is not None]


def gaps(report: Report) -> list[str]:
    """Return why a report is incomplete, one line for each reason; nothing if every selected case has a record."""
    is_empty = not report.records
    lines = ["it has no record of any case"] if is_empty else []
    lines += [f"could not be read: {line}" for line in report.unread]
    lines += [f"{_name(run)} {gap}" for run in report.runs if (gap := _gap(run)) and not (is_empty and run.complete)]
    divided = _divided(report.runs)
    for one in divided:
        if why := "; ".join(one.problems(divided)):
            run = one.shards[0]
            lines.append(f"of the run with torch {run.torch}, python {run.python} on {run.platform}, {why}")
    return lines


def _gap(run: Run) -> str:
    """Return why a run is incomplete by itself; an empty string if it is complete."""
    if run.seconds is None:
        return f"did not come to its end: it has {counted(len(run.records), 'case')}"
    if not run.complete:
        is_early = run.cases is None and not run.records
        return "ended before its cases were known" if is_early else "has no record of some of its cases"
    if run.shard:
        return ""  # run.cases counts the cases of all shards
    if not run.cases and not run.records:
        return "has no record of any case"
    return "" if run.cases in (None, len(run.records)) else f"has records of {len(run.records)} of {run.cases} cases"


def _name(run: Run) -> str:
    """Return a description of a run. If it has no records, it includes the devices, which nothing else shows."""
    what = f"shard {run.shard} of the run" if run.shard else "the run"
    on = f" on {', '.join(run.devices)}" if run.devices and not run.records else ""
    return f"{what}{on} with torch {run.torch}, begun {run.started},"


class _Divided:
    """The shards of one run that are present."""

    def __init__(self, shards: Iterable[Run]) -> None:
        self.shards = [*shards]
        self.names = {run.shard for run in self.shards}
        self.count = _count(self.shards[0])
        every = (f"{number}/{self.count}" for number in range(1, self.count + 1))
        self.missing = [name for name in every if name not in self.names]
        self.has_ended = all(run.complete for run in self.shards)

    def problems(self, divided: Iterable[_Divided]) -> Iterator[str]:
        """Yield why the shards are not a complete run. divided: all divided runs."""
        cases = next((run.cases for run in self.shards if run.cases is not None), None)
        own = sum(len(run.records) for run in self.shards)
        difference = self._difference()
        is_known = cases is not None and not difference and self.has_ended
        if self.missing:
            are = f"{', '.join(self.missing)} are" if len(self.missing) > 1 else f"{self.missing[0]} is"
            what = f"shard{'s' * (len(self.missing) > 1)} {are} missing"
            yield f"{what}, with {cases - own} of {cases} cases" if is_known and cases and cases > own else what
            yield from filter(None, map(self._stray, divided))
        if difference:
            yield difference
        elif is_known and cases != own and not self.missing:  # divided by different durations, they may leave out cases
            total = f"the shards contain {own} of {cases} cases in total"
            yield f"{total}: they were split with different --durations; rerun all shards with the same file"

    def _difference(self) -> str:
        """Return an error message if the shards have different specs or selected cases, else an empty string."""
        for key, what in DIFFERENCES.items():
            homes: defaultdict[str, list[str]] = defaultdict(list)
            for run in self.shards:
                if digest := getattr(run, key):
                    homes[digest].append(run.shard)
            if len(homes) > 1:
                return what.format(" and ".join(", ".join(names) for names in homes.values()))
        return ""

    def _stray(self, other: _Divided) -> str:
        """Return in what another run, whose shards could be the missing ones, differs; empty if they could not be."""
        first, one = self.shards[0], other.shards[0]
        is_alike = (one.devices, other.count) == (first.devices, self.count)
        if not is_alike or self.names & other.names or not other.missing:
            return ""
        keys = " and ".join(key for key in SAME if getattr(one, key) != getattr(first, key))
        which, they, them = ("shards", "they come", "them") if len(other.names) > 1 else ("shard", "it comes", "it")
        return (
            f"{which} {', '.join(sorted(other.names))} cannot fill the gap: {they} from a run with a different {keys}; "
            f"rerun {them} with the same settings"
        )

    def joined(self) -> Run | None:
        """Return the run that the shards form; None if they ran on different models of a device."""
        shards = sorted(self.shards, key=lambda run: int(run.shard.partition("/")[0]))
        details: dict[str, str] = {}
        for name, text in (item for run in shards for item in run.details.items() if item[1]):
            if details.setdefault(name, text) != text:
                return None
        words = zip(["", *shards[0].command], shards[0].command, strict=False)
        changed = {
            "details": details,
            "command": [word for before, word in words if not {before, word.partition("=")[0]} & OPTIONS],
            "shard": "",
            "started": min(run.started for run in shards),
            "seconds": round(sum(run.seconds or 0.0 for run in shards), 3),
            "records": [record for run in shards for record in run.records],
        }
        return shards[0].model_copy(update=changed)  # each shard has the counts that were left out of the whole


def _divided(runs: Iterable[Run]) -> list[_Divided]:
    """Return the runs that were divided into shards: shards of one run have equal versions, settings and selections.

    The models of their devices are compared only if a shard occurs twice, since a shard without cases on a device does
    not record its model.
    """
    result: list[_Divided] = []
    for shards in _grouped(
        filter(lambda run: run.shard, runs),
        lambda run: [*(getattr(run, key) for key in (*SAME, "devices")), _count(run)],
    ):
        is_twice = len({run.shard for run in shards}) < len(shards)
        result += map(_Divided, _grouped(shards, lambda run: run.details) if is_twice else [shards])
    return result


def _grouped(runs: Iterable[Run], key: Callable[[Run], object]) -> list[list[Run]]:
    groups: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[json.dumps(key(run), sort_keys=True)].append(run)
    return [*groups.values()]


def _count(run: Run) -> int:
    return int(run.shard.partition("/")[2])
