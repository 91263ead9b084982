"""The conditions of a run (versions, platform, engine, seed, overrides), by which runs are labelled and paired."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from opcheck.report.content import Report, Run
from opcheck.running.outcome import Outcome


class Conditions(NamedTuple):
    """All that may change the outcome of a case on one device. Runs under equal conditions should agree."""

    torch: str
    python: str
    platform: str
    details: str
    """torch's name of the device, such as the model of a GPU."""
    opcheck: str
    engine: str
    seed: int
    overrides: str
    """Numbers and settings of derivatives from the command line, as JSON."""

    @property
    def essentials(self) -> tuple[object, ...]:
        """The conditions without patches and builds of versions, the version of opcheck, and the name of the device."""
        rest = (self.platform, self.engine, self.seed, self.overrides)
        return (_minor(self.torch), _minor(self.python), *rest)


def conditions_of(run: Run) -> dict[str, Conditions]:
    """Return the conditions of a run on each device that its records have, by device."""
    overrides = json.dumps(run.overrides, sort_keys=True) if run.overrides else ""
    rest = (run.opcheck, run.engine, run.seed, overrides)
    return {
        device: Conditions(run.torch, run.python, run.platform, run.details.get(device, ""), *rest)
        for device in dict.fromkeys(record.device for record in run.records)
    }


def by_device(report: Report) -> dict[str, dict[Conditions, dict[str, Outcome]]]:
    """Return the records of a report by device, conditions and case id. A bad record of a case replaces a good one."""
    devices: dict[str, dict[Conditions, dict[str, Outcome]]] = {}
    for run in report.runs:
        conditions = conditions_of(run)
        for record in run.records:
            cases = devices.setdefault(record.device, {}).setdefault(conditions[record.device], {})
            if record.id not in cases or not cases[record.id].is_bad:
                cases[record.id] = record
    return devices


def labels(several: Iterable[Conditions]) -> dict[Conditions, str]:
    """Return a short label for each of some conditions: the version of torch, and the other fields that differ."""
    ones = list(dict.fromkeys(several))
    differing = [name for name in Conditions._fields[1:] if len({getattr(one, name) for one in ones}) > 1]
    return {one: ", ".join([f"torch {one.torch or '?'}", *(_part(one, name) for name in differing)]) for one in ones}


def columns(report: Report) -> list[dict[str, str]]:
    """Return, for each run, the names of its columns in a table of all runs, by device: `cpu, torch 2.13.0`."""
    named = {device: labels(runs) for device, runs in by_device(report).items()}
    every = (conditions_of(run).items() for run in report.runs)
    return [{device: f"{device}, {named[device][one]}" for device, one in own} for own in every]


def pairs(
    olds: Iterable[Conditions], news: Iterable[Conditions]
) -> Iterator[tuple[Conditions | None, Conditions | None]]:
    """Yield pairs of conditions, one of each report, whose runs are compared; None where a run has no partner.

    Equal conditions are paired first, then those that are equal in `essentials`, then those that are left, if each
    report has only one left. An ambiguous pair is left for the next step.
    """
    left, right = list(dict.fromkeys(olds)), list(dict.fromkeys(news))
    levels: tuple[Callable[[Conditions], object], ...] = (lambda one: one, lambda one: one.essentials, lambda one: None)
    for level in levels:
        for one in [*left]:
            like = [other for other in right if level(other) == level(one)]
            if len(like) == 1 and sum(level(other) == level(one) for other in left) == 1:
                yield one, like[0]
                left.remove(one)
                right.remove(like[0])
    yield from ((one, None) for one in left)
    yield from ((None, one) for one in right)


def _part(one: Conditions, name: str) -> str:
    value = getattr(one, name)
    if name in ("platform", "details"):
        return str(value) or f"{name} unknown"
    return f"{name} {'none' if value == '' else value}"


def _minor(text: str) -> str:
    found = re.match(r"\d+\.\d+", text)
    return found[0] if found else text
