"""The JSON report: one record a case, on disk whole at any time."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

INTERVAL = 2.0
"""Seconds between writes while cases come in: what a crash of the process can cost."""


class JsonReport:
    """Collects records and writes them as a JSON array. Each write replaces the file atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, dict[str, Any]] = {}
        self._written = time.monotonic()

    def add(self, record: dict[str, Any]) -> None:
        """Take a record; a later one of the same case replaces it."""
        self.records[record["id"]] = record
        if time.monotonic() - self._written > INTERVAL:
            self.write()

    def write(self) -> None:
        """Write what there is. Raises OSError where the file cannot be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(list(self.records.values()), indent=1, default=str)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text + "\n")
            os.chmod(name, 0o644)
            os.replace(name, self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        self._written = time.monotonic()
