"""Puts the shards of one run together, and says which are missing."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from opcheck.report.model import Device, LeftOut, Run

SAME = ("opcheck", "torch", "python", "platform", "engine", "seed", "overrides", "selection")
"""What the shards of one run have in common, beside their devices."""

OPTIONS = ("--shard", "--opcheck-shard")


def shard_of(run: Run) -> tuple[int, int]:
    """Return which shard a run is, of how many. It must be one."""
    number, _, count = run.shard.partition("/")
    return int(number), int(count)


def groups(runs: Sequence[Run]) -> list[list[int]]:
    """Return the indices of the runs that are shards of the same run, for each such run.

    They were made with the same versions, the same settings and the same selection. Which device of a kind they ran on
    counts only if a shard is there more than once: a shard without cases on a device does not know its details.
    """
    alike: dict[str, list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        if run.shard:
            alike[_key(run)].append(index)
    found = []
    for members in alike.values():
        numbers = [shard_of(runs[index])[0] for index in members]
        if len(set(numbers)) == len(numbers):
            found.append(members)
            continue
        exact: dict[str, list[int]] = defaultdict(list)
        for index in members:
            exact[str([(device.name, device.details) for device in runs[index].devices])].append(index)
        found += exact.values()
    return found


def missing(runs: Sequence[Run], members: Iterable[int]) -> list[str]:
    """Return the shards that are not among those of one run, as in 3/8."""
    there = [shard_of(runs[index]) for index in members]
    count = there[0][1]
    return [f"{number}/{count}" for number in range(1, count + 1) if (number, count) not in there]


def trouble(runs: Sequence[Run], members: Sequence[int], counts: Mapping[int, int]) -> str:
    """Return why some shards are not one whole run; an empty string if they are.

    counts: how many records each run has. Shards that were divided by different durations may leave out cases: then
    they have fewer together than were selected.
    """
    return "; ".join(_troubles(runs, members, counts))


def _troubles(runs: Sequence[Run], members: Sequence[int], counts: Mapping[int, int]) -> Iterator[str]:
    own = sum(counts.get(index, 0) for index in members)
    cases = next((runs[index].cases for index in members if runs[index].cases is not None), None)
    differing, absent = _differing(runs, members), missing(runs, members)
    lost = 0 if cases is None or differing or not all(runs[index].complete for index in members) else cases - own
    if absent:
        what = f"shard {absent[0]} is missing" if len(absent) == 1 else f"shards {', '.join(absent)} are missing"
        yield f"{what}, with {lost} of {cases} cases" if lost else what
        yield from _strays(runs, members)
    if differing:
        yield differing
    elif lost and not absent:
        yield f"the shards have {own} of {cases} cases together: they were not divided in the same way"


def _differing(runs: Sequence[Run], members: Iterable[int]) -> str:
    """Return that some shards are of other cases than others, and why; an empty string if none is."""
    for key, what in (("specs", ": the specs of "), ("planned", ": those of "), ("cases", "")):
        homes: defaultdict[object, list[str]] = defaultdict(list)
        for index in members:
            homes[getattr(runs[index], key)].append(runs[index].shard)
        known = [", ".join(shards) for value, shards in homes.items() if value not in (None, "")]
        if len(known) > 1:
            named = f"{what}{' and of '.join(known)} differ" if what else ""
            return f"the shards are not of the same cases{named}"
    return ""


def _strays(runs: Sequence[Run], members: Sequence[int]) -> Iterator[str]:
    """Yield in what each shard that could be a missing one differs from the others, if a run of its own lacks more."""
    first, there = runs[members[0]], {runs[index].shard for index in members}
    for others in groups(runs):
        shards = {runs[index].shard for index in others}
        one = runs[others[0]]
        alike = (_names(one), shard_of(one)[1]) == (_names(first), shard_of(first)[1])
        if alike and not shards & there and missing(runs, others):
            keys = [key for key in SAME if getattr(one, key) != getattr(first, key)]
            yield f"those that are there differ from {', '.join(sorted(shards))} of another run in {', '.join(keys)}"


def folded(shards: Sequence[Run]) -> Run | None:
    """Return the run that some shards make up; None if they ran on different devices."""
    names: dict[str, str] = {}
    for device in (device for run in shards for device in run.devices):
        known = names.setdefault(device.name, device.details)
        if known and device.details and known != device.details:
            return None
        names[device.name] = known or device.details
    seconds = [run.seconds for run in shards]
    changed = {
        "devices": [Device(name=name, details=details) for name, details in names.items()],
        "command": _without_shard(shards[0].command),
        "shard": "",
        "started": min(run.started for run in shards),
        "seconds": None if None in seconds else round(sum(one or 0.0 for one in seconds), 3),
        "complete": all(run.complete for run in shards),
        "left_out": _left_out(shards),
    }
    return shards[0].model_copy(update=changed)


def _key(run: Run) -> str:
    return json.dumps([*(getattr(run, key) for key in SAME), _names(run), shard_of(run)[1]], sort_keys=True)


def _names(run: Run) -> list[str]:
    return [device.name for device in run.devices]


def _left_out(shards: Iterable[Run]) -> list[LeftOut]:
    """Return what was left out of the whole, which each shard has counted."""
    most: dict[tuple[str, str], LeftOut] = {}
    for row in (row for run in shards for row in run.left_out):
        known = most.setdefault((row.device, row.reason), row)
        most[row.device, row.reason] = max(known, row, key=lambda one: one.cases)
    return list(most.values())


def _without_shard(command: Sequence[str]) -> list[str]:
    found, words = [], iter(command)
    for word in words:
        if word in OPTIONS:
            next(words, None)
        elif not word.startswith(tuple(f"{option}=" for option in OPTIONS)):
            found.append(word)
    return found
