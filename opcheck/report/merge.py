"""Puts runs into one report, the shards of a run into one run, and says what is missing."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from opcheck.report.content import Report, Run
from opcheck.report.labels import Conditions, conditions_of
from opcheck.spec.problems import RequestError
from opcheck.text import counted

SAME = (*(name for name in Conditions._fields if name != "details"), "selection")
"""What the shards of one run have in common, beside their devices."""

OPTIONS = ("--shard", "--opcheck-shard")

MOST = 5
"""The most cases that an error names."""


def merge(reports: Iterable[tuple[str, Report]], unread: Iterable[str] = ()) -> Report:
    """Return one report of all runs, one after another. The shards of a run become one if all of them are there.

    reports: each with the name of its file. unread: why others could not be read.
    Raises RequestError if a case is there twice in runs that do not differ.
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
                    twice.append(f"{record.id} is in {homes[key]} and in {name}")
                homes[key] = name
        merged.runs += report.runs
        merged.unread += report.unread
    if twice:
        more = [f"... and {len(twice) - MOST} more cases are there twice"] if len(twice) > MOST else []
        why = "their runs do not differ in versions, platform, device, engine, seed or overrides"
        raise RequestError([*twice[:MOST], *more, why])
    return Report(joined(merged.runs), merged.unread)


def joined(runs: Sequence[Run]) -> list[Run]:
    """Return runs in which the shards of a run are one run, if all of them are there and have ended."""
    whole: dict[int, Run | None] = {}
    groups = _groups(runs)
    for shards in groups:
        has_ended = all(run.complete for run in shards)  # else each is named by its number
        if has_ended and not any(_problems(shards, groups)) and (one := _joined(shards)):
            whole |= dict.fromkeys(map(id, shards)) | {id(shards[0]): one}
    return [run for run in (whole.get(id(run), run) for run in runs) if run is not None]


def gaps(report: Report) -> list[str]:
    """Return why a report is incomplete, one line each; nothing if every selected case has a record."""
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
    """Return what a run alone does not have; an empty string if it has all."""
    if run.seconds is None:
        return f"did not come to its end: it has {counted(len(run.records), 'case')}"
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


def _groups(runs: Iterable[Run]) -> list[list[Run]]:
    """Return the runs that are shards of the same run, for each such run.

    They were made with the same versions, the same settings and the same selection. Which device of a kind they ran on
    counts only if a shard is there more than once: a shard without cases on a device does not know its details.
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
    """Yield why some shards are not one whole run. groups: they, and the shards of other runs.

    Shards that were divided by different durations may leave out cases: then they have fewer together than were
    selected.
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
        yield f"the shards have {own} of {cases} cases together: they were not divided in the same way"


def _count(run: Run) -> int:
    return int(run.shard.partition("/")[2])


def _missing(shards: Sequence[Run]) -> list[str]:
    """Return the shards that are not among those of one run, as in 3/8."""
    count, there = _count(shards[0]), {run.shard for run in shards}
    return [name for name in (f"{number}/{count}" for number in range(1, count + 1)) if name not in there]


def _difference(shards: Iterable[Run]) -> str:
    """Return that some shards are of other cases than others, and why; an empty string if none is."""
    for key, what in (("specs", ": the specs of "), ("planned", ": those of "), ("cases", "")):
        homes: defaultdict[object, list[str]] = defaultdict(list)
        for run in shards:
            homes[getattr(run, key)].append(run.shard)
        known = [", ".join(names) for value, names in homes.items() if value not in (None, "")]
        if len(known) > 1:
            named = f"{what}{' and of '.join(known)} differ" if what else ""
            return f"the shards are not of the same cases{named}"
    return ""


def _strays(shards: Sequence[Run], groups: Iterable[Sequence[Run]]) -> Iterator[str]:
    """Yield in what each other group of shards, which could be the missing ones, differs from those that are there."""
    first, there = shards[0], {run.shard for run in shards}
    for others in groups:
        one, names = others[0], {run.shard for run in others}
        is_alike = (one.devices, _count(one)) == (first.devices, _count(first))
        if is_alike and not names & there and _missing(others):
            keys = [key for key in SAME if getattr(one, key) != getattr(first, key)]
            yield f"those that are there differ from {', '.join(sorted(names))} of another run in {', '.join(keys)}"


def _joined(several: Iterable[Run]) -> Run | None:
    """Return the run that some shards make up; None if they ran on different devices.

    What was left out of the whole, each of them has counted.
    """
    shards = sorted(several, key=lambda run: int(run.shard.partition("/")[0]))
    details: dict[str, str] = {}
    for name, text in (item for run in shards for item in run.details.items() if item[1]):
        if details.setdefault(name, text) != text:
            return None
    changed = {
        "details": details,
        "command": _without_shard(shards[0].command),
        "shard": "",
        "started": min(run.started for run in shards),
        "seconds": round(sum(run.seconds or 0.0 for run in shards), 3),
        "records": [record for run in shards for record in run.records],
    }
    return shards[0].model_copy(update=changed)


def _without_shard(command: Iterable[str]) -> list[str]:
    kept, words = [], iter(command)
    for word in words:
        if word in OPTIONS:
            next(words, None)
        elif not word.startswith(tuple(f"{option}=" for option in OPTIONS)):
            kept.append(word)
    return kept
