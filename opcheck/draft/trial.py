"""Runs the cases of a draft by `opcheck run`, in a folder of its own, and reads the report."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opcheck.draft.draft import Draft
from opcheck.draft.probing import Surroundings
from opcheck.draft.writing import written
from opcheck.report.model import ReportError
from opcheck.report.store import read
from opcheck.spec.render import render

MOST_ROUNDS = 6
Record = dict[str, Any]


class Broken(Exception):
    """A run that gives no report. The text is what it printed."""


def tried_out(drafts: Sequence[Draft], around: Surroundings, processes: int) -> list[Record]:
    """Run the cases of drafts and take back what operators refuse, until a run asks for nothing more.

    Returns the records of the last run. Raises Broken.
    """
    left = {draft.id: draft for draft in drafts}
    final: dict[str, list[Record]] = {}
    for _ in range(MOST_ROUNDS):
        records = _run(list(left.values()), around, processes)
        own = {name: [record for record in records if record["operator"] == name] for name in left}
        missing = [name for name, has_record in own.items() if not has_record]
        if missing:
            raise Broken(f"the run has no case of {', '.join(missing)}")
        final |= own
        left = {name: draft for name, draft in left.items() if draft.revise(own[name])}
        if not left:
            break
    return [record for records in final.values() for record in records]


def _run(drafts: Sequence[Draft], around: Surroundings, processes: int) -> list[Record]:
    with tempfile.TemporaryDirectory(prefix="opcheck-") as name:
        folder = Path(name)
        settings = f"[tool.opcheck]\nmodules = {render(list(around.modules))}\n"
        Path(folder, "pyproject.toml").write_text(settings, encoding="utf-8")
        Path(folder, "draft.toml").write_text(written(drafts), encoding="utf-8")
        command = [sys.executable, "-m", "opcheck", "run", "draft.toml", "--device", "cpu", "--report-json=report.json"]
        command += ["-n", str(min(processes, len(drafts))), "--timeout", f"{around.seconds:g}"]
        done = subprocess.run(
            command, cwd=folder, env=around.environment(), capture_output=True, text=True, check=False
        )
        report = Path(folder, "report.json")
        if done.returncode not in (0, 1) or not report.exists():
            raise Broken(done.stderr.strip() or done.stdout.strip() or f"the run ended with status {done.returncode}")
        try:
            return [record.model_dump() for run in read(report).runs for record in run.records]
        except ReportError as error:
            raise Broken(str(error)) from error
