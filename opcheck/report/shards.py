"""Puts the shards of one run together, and says which are missing."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from opcheck.report.model import LeftOut, Run

SAME = ("opcheck", "torch", "python", "platform", "engine", "seed", "overrides", "selection")
"""What the shards of one run have in common, beside their devices."""

OPTIONS = ("--shard", "--opcheck-shard")


def joined(runs: Sequence[Run]) -> list[Run]:
    """Return runs in which the shards of a run are one run, if all of them are there and have ended."""
    whole: dict[int, Run | None] = {}
    for shards in groups(runs):
        has_ended = all(run.complete for run in shards)  # else each is named by its number
        if has_ended and not any(problems(shards, runs)) and (one := _joined(sorted(shards, key=_shard))):
            whole |= dict.fromkeys(map(id, shards)) | {id(shards[0]): one}
    return [run for run in (whole.get(id(run), run) for run in runs) if run is not None]


def groups(runs: Iterable[Run]) -> list[list[Run]]:
    """Return the runs that are shards of the same run, for each such run.

    They were made with the same versions, the same settings and the same selection. Which device of a kind they ran on
    counts only if a shard is there more than once: a shard without cases on a device does not know its details.
    """
    alike: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.shard:
            same = [getattr(run, key) for key in (*SAME, "devices")]
            alike[json.dumps([*same, _shard(run)[1]], sort_keys=True)].append(run)
    result: list[list[Run]] = []
    for shards in alike.values():
        by_details: defaultdict[str, list[Run]] = defaultdict(list)
        is_twice = len({run.shard for run in shards}) < len(shards)
        for run in shards:
            by_details[json.dumps(run.details, sort_keys=True) if is_twice else ""].append(run)
        result += by_details.values()
    return result


def problems(shards: Sequence[Run], runs: Iterable[Run]) -> Iterator[str]:
    """Yield why some shards, among other runs, are not one whole run.

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
        yield from _strays(shards, runs)
    if differing:
        yield differing
    elif is_known and cases != own and not missing:
        yield f"the shards have {own} of {cases} cases together: they were not divided in the same way"


def _shard(run: Run) -> tuple[int, int]:
    """Return which shard a run is, of how many. It must be one."""
    number, _, count = run.shard.partition("/")
    return int(number), int(count)


def _missing(shards: Iterable[Run]) -> list[str]:
    """Return the shards that are not among those of one run, as in 3/8."""
    there = [_shard(run) for run in shards]
    count = there[0][1]
    return [f"{number}/{count}" for number in range(1, count + 1) if (number, count) not in there]


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


def _strays(shards: Sequence[Run], runs: Iterable[Run]) -> Iterator[str]:
    """Yield in what the shards of another run, which could be the missing ones, differ from those that are there."""
    first, there = shards[0], {run.shard for run in shards}
    for others in groups(runs):
        one, names = others[0], {run.shard for run in others}
        is_alike = (one.devices, _shard(one)[1]) == (first.devices, _shard(first)[1])
        if is_alike and not names & there and _missing(others):
            keys = [key for key in SAME if getattr(one, key) != getattr(first, key)]
            yield f"those that are there differ from {', '.join(sorted(names))} of another run in {', '.join(keys)}"


def _joined(shards: Sequence[Run]) -> Run | None:
    """Return the run that some shards make up; None if they ran on different devices."""
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
        "left_out": _left_out(shards),
        "records": [record for run in shards for record in run.records],
    }
    return shards[0].model_copy(update=changed)


def _left_out(shards: Iterable[Run]) -> list[LeftOut]:
    """Return what was left out of the whole, which each shard has counted."""
    most: dict[tuple[str, str], LeftOut] = {}
    for row in (row for run in shards for row in run.left_out):
        known = most.setdefault((row.device, row.reason), row)
        most[row.device, row.reason] = max(known, row, key=lambda one: one.cases)
    return list(most.values())


def _without_shard(command: Iterable[str]) -> list[str]:
    kept, words = [], iter(command)
    for word in words:
        if word in OPTIONS:
            next(words, None)
        elif not word.startswith(tuple(f"{option}=" for option in OPTIONS)):
            kept.append(word)
    return kept
