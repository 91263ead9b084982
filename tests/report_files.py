"""Reports made by hand, for tests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opcheck.report.content import Report, Run
from opcheck.running.outcome import Outcome


@dataclass(frozen=True)
class Placed(Outcome):
    """An outcome that says which run of its report it is of. Files have no such key."""

    run: int = 0

    def record(self) -> dict[str, Any]:
        """Return the outcome as plain data, without its run."""
        return {key: value for key, value in super().record().items() if key != "run"}


def run(**keys: Any) -> Run:
    """Return a run that came to its end."""
    known: dict[str, Any] = {
        "opcheck": "0.1.0", "torch": "2.13.0", "python": "3.11.7", "platform": "Linux x86_64",
        "devices": ["cpu"], "engine": "batched", "seed": 0, "started": "2026-01-01T00:00:00+00:00",
        "seconds": 1.5, "complete": True,
    }  # fmt: skip
    return Run(**known | keys)


def record(name: str, outcome: str = "passed", **keys: Any) -> Placed:
    """Return the record of a case `torch.NAME::backward[cpu-float64]`, or of one with a whole id."""
    subject, _, rest = name.partition("::")
    check, _, place = (rest or "backward[cpu-float64]").removesuffix("]").partition("[")
    device, _, dtype = place.rpartition("-")
    known: dict[str, Any] = {
        "id": name, "operator": subject, "variant": "function", "check": check, "device": device, "dtype": dtype,
        "family": "unary", "outcome": outcome, "reason": "" if outcome == "passed" else f"why it {outcome}",
        "seconds": 0.25, "file": "specs/unary.toml", "line": 3, "column": 8,
    }  # fmt: skip
    return Placed(**known | keys)


def report(*records: Placed, runs: list[Run] | None = None, unread: list[str] | None = None) -> Report:
    """Return a report, of one run unless others are given."""
    several = [run()] if runs is None else runs
    own = [[one for one in records if one.run == number] for number in range(len(several))]
    whole = [one.model_copy(update={"records": some}) for one, some in zip(several, own, strict=True)]
    return Report(whole, unread or [])


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a report."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    """Write the lines of a report."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
