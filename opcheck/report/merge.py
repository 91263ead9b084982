"""Merges reports, joins the shards of a run, and finds what is missing."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

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
    groups = _groups(runs)
    for shards in groups:
        has_ended = all(run.complete for run in shards)  # else gaps() names the incomplete shards
        if has_ended and not any(_problems(shards, groups)) and (one := _joined(shards)):
            whole |= dict.fromkeys(map(id, shards)) | {id(shards[0]): one}
    return [run for run in (whole.get(id(run), run) for run in runs) if run is not None]


def gaps(report: Report) -> list[str]:
    """Return why a report is incomplete, one line for each reason; nothing if every selected case has a record."""
    is_empty = not report.records
    lines = ["it has no record of any case"] if is_empty else []
    lines += [f"could not be read: {line}" for line in report.unread]
    lines += [f"{_name(run)} {gap}" for run in report.runs if (gap := _gap(run)) and not (is_empty and run.complete)]
    groups = _groups(report.runs)
    for shards in groups:
        one, why = shards[0], "; ".join(_problems(shards, groups))
        lines += [f"of the run with torch {one.torch}, python {one.python} on {one.platform}, {why}"] if why else []
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


def _groups(runs: Iterable[Run]) -> list[list[Run]]:
    """Return the shards of each run that was divided.

    Shards of one run have equal versions, settings and selections. The models of their devices are compared only if a
    shard occurs twice, since a shard without cases on a device does not record its model.
    """
    alike: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.shard:
            same = [getattr(run, key) for key in (*SAME, "devices")]
            alike[json.dumps([*same, _count(run)], sort_keys=True)].append(run)
    result: list[list[Run]] = []
    for shards in alike.values():
        by_details: defaultdict[str, list[Run]] = defaultdict(list)
        is_twice = len({run.shard for run in shards}) < len(shards)
        for run in shards:
            by_details[json.dumps(run.details, sort_keys=True) if is_twice else ""].append(run)
        result += by_details.values()
    return result


def _problems(shards: Sequence[Run], groups: Iterable[Sequence[Run]]) -> Iterator[str]:
    """Yield why some shards are not a complete run. groups: the shards of all runs, these included.

    If shards were divided by different durations, they may leave out cases. Then they have fewer cases together than
    were selected.
    """
    missing, differing = _missing(shards), _difference(shards)
    cases = next((run.cases for run in shards if run.cases is not None), None)
    own = sum(len(run.records) for run in shards)
    is_known = cases is not None and not differing and all(run.complete for run in shards)
    if missing:
        what = f"shard {missing[0]} is missing" if len(missing) == 1 else f"shards {', '.join(missing)} are missing"
        yield f"{what}, with {cases - own} of {cases} cases" if is_known and cases and cases > own else what
        yield from _strays(shards, groups)
    if differing:
        yield differing
    elif is_known and cases != own and not missing:
        total = f"the shards contain {own} of {cases} cases in total"
        yield f"{total}: they were split with different --durations; rerun all shards with the same file"


def _count(run: Run) -> int:
    return int(run.shard.partition("/")[2])


def _missing(shards: Sequence[Run]) -> list[str]:
    """Return the shards of a run that are missing, such as 3/8."""
    count, there = _count(shards[0]), {run.shard for run in shards}
    return [name for name in (f"{number}/{count}" for number in range(1, count + 1)) if name not in there]


def _difference(shards: Iterable[Run]) -> str:
    """Return an error message if the shards have different specs or selected cases, else an empty string."""
    for key, what in DIFFERENCES.items():
        homes: defaultdict[str, list[str]] = defaultdict(list)
        for run in shards:
            if digest := getattr(run, key):
                homes[digest].append(run.shard)
        if len(homes) > 1:
            return what.format(" and ".join(", ".join(names) for names in homes.values()))
    return ""


def _strays(shards: Sequence[Run], groups: Iterable[Sequence[Run]]) -> Iterator[str]:
    """Yield the fields in which other shards, which could be the missing ones, differ from the present ones."""
    first, there = shards[0], {run.shard for run in shards}
    for others in groups:
        one, names = others[0], {run.shard for run in others}
        is_alike = (one.devices, _count(one)) == (first.devices, _count(first))
        if is_alike and not names & there and _missing(others):
            keys = [key for key in SAME if getattr(one, key) != getattr(first, key)]
            which, they, them = ("shards", "they come", "them") if len(names) > 1 else ("shard", "it comes", "it")
            yield (
                f"{which} {', '.join(sorted(names))} cannot fill the gap: {they} from a run with a different "
                f"{' and '.join(keys)}; rerun {them} with the same settings"
            )


def _joined(several: Iterable[Run]) -> Run | None:
    """Return the run that some shards form; None if they ran on different models of a device.

    `left_out` is that of the first shard: each shard has the counts of the whole run.
    """
    shards = sorted(several, key=lambda run: int(run.shard.partition("/")[0]))
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
    return shards[0].model_copy(update=changed)
