"""What a run was made with: by this, runs are told apart when reports are merged and compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from opcheck.report.model import Record, Report, Run


class Makeup(NamedTuple):
    """What may change the outcome of a case on one device. Two runs with the same makeup are to agree."""

    torch: str
    python: str
    platform: str
    details: str
    """What torch calls the device."""
    opcheck: str
    engine: str
    seed: int
    overrides: str
    """Numbers and settings of derivatives from the command line, as JSON."""

    @property
    def roughly(self) -> tuple[object, ...]:
        """The same without what changes from one day to the next: patches and builds of versions."""
        rest = (self.platform, self.engine, self.seed, self.overrides)
        return (_minor(self.torch), _minor(self.python), *rest)


def makeup(run: Run, device: str) -> Makeup:
    """Return what the cases of a run on one device were made with."""
    details = next((one.details for one in run.devices if one.name == device), "")
    overrides = json.dumps(run.overrides, sort_keys=True) if run.overrides else ""
    return Makeup(run.torch, run.python, run.platform, details, run.opcheck, run.engine, run.seed, overrides)


def labels(made: Iterable[Makeup]) -> dict[Makeup, str]:
    """Return a short name for each of some makeups: the version of torch, and what else tells them apart."""
    several = list(dict.fromkeys(made))
    differing = [name for name in Makeup._fields[1:] if len({getattr(one, name) for one in several}) > 1]
    return {one: ", ".join([f"torch {one.torch or '?'}", *(_part(one, name) for name in differing)]) for one in several}


Cases = dict[Makeup, dict[str, Record]]
"""The records on one device by case id, for each makeup."""


def by_device(report: Report) -> dict[str, Cases]:
    """Return the records of a report by device, makeup and case id. Of two records of a case, a bad one counts."""
    found: dict[str, Cases] = {}
    places: dict[tuple[int, str], dict[str, Record]] = {}
    for record in report.records:
        place = record.run, record.device
        if place not in places:
            made = makeup(report.runs[record.run], record.device)
            places[place] = found.setdefault(record.device, {}).setdefault(made, {})
        known = places[place].setdefault(record.id, record)
        if not known.is_bad:
            places[place][record.id] = record
    return found


def _part(one: Makeup, name: str) -> str:
    value = getattr(one, name)
    if name in ("platform", "details"):
        return str(value) or f"{name} unknown"
    return f"{name} {'none' if value == '' else value}"


def _minor(text: str) -> str:
    try:
        version = Version(text)
    except InvalidVersion:
        return text
    return f"{version.major}.{version.minor}"


def paired(olds: Iterable[Makeup], news: Iterable[Makeup]) -> Iterator[tuple[Makeup | None, Makeup | None]]:
    """Yield each makeup of two reports with the one that it is compared with, if there is one.

    That is the same one, else one with the same minor versions of torch and Python, else the only one that is left.
    """
    left, right = list(dict.fromkeys(olds)), list(dict.fromkeys(news))
    levels: tuple[Callable[[Makeup], object], ...] = (lambda one: one, lambda one: one.roughly, lambda one: None)
    for level in levels:
        for one in [*left]:
            like = [other for other in right if level(other) == level(one)]
            if len(like) == 1 and sum(level(other) == level(one) for other in left) == 1:
                yield one, like[0]
                left.remove(one)
                right.remove(like[0])
    yield from ((one, None) for one in left)
    yield from ((None, one) for one in right)
