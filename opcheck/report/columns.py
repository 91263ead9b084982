"""The columns of a picture of several runs: one for each device, and each makeup of the runs on it."""

from __future__ import annotations

from opcheck.report.makeup import Makeup, labels, makeup
from opcheck.report.model import Record, Report


class Columns:
    """Says which column of a report a record belongs to."""

    def __init__(self, report: Report) -> None:
        self._made: dict[tuple[int, str], Makeup] = {}
        for place in dict.fromkeys((record.run, record.device) for record in report.records):
            self._made[place] = makeup(report.runs[place[0]], place[1])
        self._names: dict[tuple[int, str], str] = {}
        for device in dict.fromkeys(device for _, device in self._made):
            own = {place: made for place, made in self._made.items() if place[1] == device}
            told = labels(own.values())
            self._names |= {place: f"{device}, {told[made]}" for place, made in own.items()}

    def of(self, record: Record) -> str:
        """Return the name of the column, such as `cpu, torch 2.13.0`."""
        return self._names[record.run, record.device]
