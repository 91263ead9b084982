"""Keeps the JSON report of a run of pytest: its header, the records, and whether every selected case has one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from opcheck.plan.left_out import Rule
from opcheck.report.json_report import JsonReport
from opcheck.report.left_out import rows
from opcheck.report.model import Run
from opcheck.report.places import within


@dataclass(frozen=True)
class Facts:
    """What a run tells its reports."""

    begun: Run
    """The header, as far as it is known before the project is."""
    header: Callable[[], Run]
    """Returns the header, as far as it is known before the first case. Raises UsageError."""
    root: Callable[[], Path]
    """Returns the root of the project."""
    left_out: Callable[[], Counter[Rule]]
    """Returns how many cases each rule of a device profile leaves out."""
    other_shards: Callable[[], int]
    """Returns how many of the selected cases other shards have."""
    planned: Callable[[], tuple[str, str]]
    """Returns the digests of the selected cases, and of their specs; empty where they are not known."""
    seed: Callable[[], int | None]
    """Returns the seed to name in rerun commands."""


class Recorder:
    """Writes the JSON report of a run."""

    def __init__(self, path: Path, facts: Facts, bases: Sequence[Path]) -> None:
        """Create the report. Raises OSError if the file cannot be written.

        bases: the folders that the files of records may be relative to, the likeliest first.
        """
        self._report = JsonReport(path, facts.begun)
        self._facts = facts
        self._bases = bases
        self._start = time.monotonic()
        self._planned: set[str] | None = None
        """The tests that are to run; None before they are known."""
        self._done: set[str] = set()
        self._devices: dict[str, str] = {}
        self._has_missed = False
        """Whether a file could not be collected, so that its cases are not known."""

    def begin(self) -> None:
        """Write the header of a run whose project is known. Raises UsageError for mistakes in it."""
        self._report.begin(self._facts.header())

    def plan(self, nodeids: Iterable[str]) -> None:
        """Take note of the tests that are to run."""
        self._planned = (self._planned or set()).union(filter(is_case, nodeids))

    def miss(self) -> None:
        """Take note that there are cases which nobody knows, since their file could not be collected."""
        self._has_missed = True

    def describe(self, device: str, details: str) -> None:
        """Take note of what torch calls a device."""
        self._devices[device] = details

    def add(self, nodeid: str, record: Mapping[str, Any]) -> None:
        """Add the record of a case."""
        self._done.add(nodeid)
        self._report.add({**record, "file": self._file(record["file"])})

    def finish(self) -> str:
        """Complete the report. Return what is wrong with it, or an empty string."""
        run = self._report.run
        devices = [one.model_copy(update={"details": self._devices.get(one.name, "")}) for one in run.devices]
        planned = None if self._has_missed else self._planned
        cases, specs = self._facts.planned()
        ended = {
            "devices": devices,
            "seconds": round(time.monotonic() - self._start, 3),
            "cases": None if planned is None else len(planned) + self._facts.other_shards(),
            "planned": cases,
            "specs": specs,
            "complete": planned is not None and planned <= self._done,
            "left_out": rows(self._facts.left_out()),
        }
        return self._report.finish(run.model_copy(update=ended))

    def _file(self, file: str) -> str:
        return _within(self._facts.root(), tuple(self._bases), file) if file else ""


@lru_cache(maxsize=4096)
def _within(root: Path, bases: tuple[Path, ...], file: str) -> str:
    found = (base / file for base in bases if (base / file).exists())
    return within(root, next(found, bases[0] / file))


def is_case(nodeid: str) -> bool:
    """Tell whether a test of pytest is a case of opcheck."""
    return ".toml::" in nodeid
