"""The JSON report: one record per case. The file on disk is valid after every record."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

BEGIN, BETWEEN, END = b"[\n", b",\n", b"\n]\n"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class JsonReport:
    """Writes records as a JSON array, one per line. A crash of the process loses no finished record.

    If the disk is full, the file remains valid, and missing records are written once there is room.
    """

    def __init__(self, path: Path) -> None:
        """Create an empty report. Raises OSError if the file cannot be written."""
        if path.exists() and not path.is_file():
            raise OSError(f"{path} is not a regular file")
        self.path = path.resolve()  # a symbolic link remains one
        self.records: dict[str, dict[str, Any]] = {}
        self.trouble: OSError | None = None
        """Why records are missing, if any are."""
        self._missing: list[dict[str, Any]] = []
        self._outdated = False
        """Whether the file contains a record that a later one of the same case replaces."""
        self._file: FileIO | None = None
        self._end = 0
        """The offset of the next record, which overwrites the end of the array."""
        self._replace()

    def add(self, record: dict[str, Any]) -> None:
        """Add a record and write it if possible. A later record of the same case replaces it."""
        self._outdated |= record["id"] in self.records
        self.records[record["id"]] = record
        self._missing.append(record)
        if not (self._outdated and self.trouble):  # rewriting all of them for every case would take too long
            self._write()

    def finish(self) -> str:
        """Write what is missing, and return what is wrong with the report, or an empty string if it is complete."""
        if self._missing:
            self._write()
        try:
            if self._file is not None:
                os.fsync(self._file.fileno())
        except OSError as error:
            if error.errno in NO_ROOM:  # some file systems report it only now
                self.trouble = error
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.trouble is None:
            return ""
        count = f"{len(self._missing)} of {len(self.records)} records are missing: " if self._missing else ""
        return f"the report {self.path} is incomplete: {count}{self.trouble.strerror or self.trouble}"

    def _write(self) -> None:
        """Write the missing records: append them, or replace the file if it is outdated."""
        try:
            if self._outdated or not self.path.exists():
                self._replace()
            while self._missing:
                self._append(self._missing[0])
                del self._missing[0]
            self.trouble = None
        except OSError as error:
            self.trouble = error

    def _append(self, record: dict[str, Any]) -> None:
        text = (BETWEEN if self._end > len(BEGIN) else b"") + _line(record)
        try:
            self._put(text + END)  # in one system call, so that neither a reader nor a crash finds half a record
        except OSError:
            with suppress(OSError):  # overwrites what was there before, which needs no room
                self._put(END)
                self._opened().truncate()
            raise
        self._end += len(text)

    def _put(self, text: bytes) -> None:
        """Write text at the end of the array. Raises OSError, even if there is room for a part of it."""
        file = self._opened()
        file.seek(self._end)
        while text:
            text = text[file.write(text) :]

    def _opened(self) -> FileIO:
        if self._file is None:
            self._file = FileIO(self.path, "r+")
        return self._file

    def _replace(self) -> None:
        """Replace the file by all records. If that fails, raises OSError and leaves the file unchanged."""
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
        if self._file is not None:
            self._file.close()
        self._file = None
        self._end = len(text)
        self._missing.clear()
        self._outdated = False


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False).encode()
