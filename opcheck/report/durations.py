"""How long cases have taken, read from the report of an earlier run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from opcheck.plan.shards import Durations
from opcheck.spec.problems import Problem, SpecError


def records_of(path: Path) -> Any:
    """Return the records in a report."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return data["records"] if isinstance(data, dict) else data


def read_durations(path: Path) -> Durations:
    """Read the durations in a report. Raises SpecError if it cannot be read."""
    try:
        return Durations.of(records_of(path), str(path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError([Problem(str(path), 1, 1, f"no report: {error}")]) from None
