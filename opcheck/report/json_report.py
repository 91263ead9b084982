"""The JSON report: one record a case, on disk and whole after each of them."""

from __future__ import annotations

import json
import os
import tempfile
from io import FileIO
from pathlib import Path
from typing import Any

BEGIN, BETWEEN, END = b"[\n", b",\n", b"\n]\n"


class JsonReport:
    """Writes records as a JSON array, one a line. A crash of the process costs nothing that had finished."""

    def __init__(self, path: Path) -> None:
        """Begin an empty report. Raises OSError where the file cannot be written."""
        if path.exists() and not path.is_file():
            raise OSError(f"{path} is no regular file")
        self.path = path
        self.records: dict[str, dict[str, Any]] = {}
        self._file: FileIO | None = None
        self._end = 0
        """Where the next record goes: over the end of the array."""
        self.write()

    def add(self, record: dict[str, Any]) -> None:
        """Take a record, and write it; a later one of the same case replaces it."""
        again = record["id"] in self.records
        self.records[record["id"]] = record
        if again or self._file is None or not self.path.exists():
            self.write()
            return
        text = (BETWEEN if len(self.records) > 1 else b"") + _line(record)
        self._file.seek(self._end)
        self._file.write(text + END)  # one system call: no reader and no crash sees half a record
        self._end += len(text)

    def write(self) -> None:
        """Replace the file by what there is. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = BEGIN + BETWEEN.join(map(_line, self.records.values()))
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text + END)
            os.chmod(name, 0o644)
            os.replace(name, self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        self._end = len(text)
        if self._file is not None:
            self._file.close()
        self._file = FileIO(self.path, "r+")


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False).encode()
