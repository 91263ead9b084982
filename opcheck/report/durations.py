"""How long cases have taken, read from the report of an earlier run."""

from __future__ import annotations

from pathlib import Path

from opcheck.planning.shards import Durations, Taken
from opcheck.report.store import read


def read_durations(path: Path) -> Durations:
    """Return the durations in a report. Raises ReportError if it cannot be read.

    A skipped case has taken no time, and says nothing of what it would take.
    """
    records = (record for record in read(path).records if record.outcome != "skipped")
    return Durations.of((Taken(one.id, one.operator, one.check, one.seconds) for one in records), str(path))
