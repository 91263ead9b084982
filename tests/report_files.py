"""Reports made by hand, for tests."""

from __future__ import annotations

from typing import Any

from opcheck.report.model import Device, Record, Report, Run


def run(**keys: Any) -> Run:
    """Return a run that came to its end."""
    known: dict[str, Any] = {
        "opcheck": "0.1.0", "torch": "2.13.0", "python": "3.11.7", "platform": "Linux x86_64",
        "devices": [Device(name="cpu")], "engine": "batched", "seed": 0, "started": "2026-01-01T00:00:00+00:00",
        "seconds": 1.5, "complete": True,
    }  # fmt: skip
    return Run(**known | keys)


def record(name: str, outcome: str = "passed", **keys: Any) -> Record:
    """Return the record of a case `torch.NAME::backward[cpu-float64]`, or of one with a whole id."""
    subject, _, rest = name.partition("::")
    check, _, place = (rest or "backward[cpu-float64]").removesuffix("]").partition("[")
    device, _, dtype = place.rpartition("-")
    known: dict[str, Any] = {
        "id": name, "operator": subject, "variant": "function", "check": check, "device": device, "dtype": dtype,
        "family": "unary", "outcome": outcome, "reason": "" if outcome == "passed" else f"why it {outcome}",
        "seconds": 0.25, "file": "specs/unary.toml", "line": 3, "column": 8,
    }  # fmt: skip
    return Record(**known | keys)


def report(*records: Record, runs: list[Run] | None = None) -> Report:
    """Return a report, of one run unless others are given."""
    return Report(runs=[run()] if runs is None else runs, records=list(records))
