"""The JSON report: one record a case, on disk and whole after each of them."""

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
    """Writes records as a JSON array, one a line. A crash of the process costs nothing that had finished.

    Where the disk is full, what was written before stays whole, and what is missing is written once there is room.
    """

    def __init__(self, path: Path) -> None:
        """Begin an empty report. Raises OSError where the file cannot be written."""
        if path.exists() and not path.is_file():
            raise OSError(f"{path} is not a regular file")
        self.path = path.resolve()  # a link stays one
        self.records: dict[str, dict[str, Any]] = {}
        self.trouble: OSError | None = None
        """Why records are missing, where some are."""
        self._missing: list[dict[str, Any]] = []
        self._outdated = False
        """Whether the file has a record of a case that there is a later one of."""
        self._file: FileIO | None = None
        self._end = 0
        """Where the next record goes: over the end of the array."""
        self._replace()

    def add(self, record: dict[str, Any]) -> None:
        """Take a record, and write it if that is possible; a later one of the same case replaces it."""
        self._outdated |= record["id"] in self.records
        self.records[record["id"]] = record
        self._missing.append(record)
        if not (self._outdated and self.trouble):  # all of them once more, case by case, would take too long
            self._write()

    def finish(self) -> str:
        """Write what is missing, and return what is wrong with the report; an empty string where it is complete."""
        if self._missing:
            self._write()
        try:
            if self._file is not None:
                os.fsync(self._file.fileno())
        except OSError as error:
            if error.errno in NO_ROOM:  # which some file systems do not say before
                self.trouble = error
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.trouble is None:
            return ""
        count = f"{len(self._missing)} of {len(self.records)} records are missing: " if self._missing else ""
        return f"the report {self.path} is incomplete: {count}{self.trouble.strerror or self.trouble}"

    def _write(self) -> None:
        """Write the records that are missing, after the others or together with them."""
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
            self._put(text + END)  # one system call: no reader and no crash sees half a record
        except OSError:
            with suppress(OSError):  # over what was there before, which takes no room
                self._put(END)
                self._opened().truncate()
            raise
        self._end += len(text)

    def _put(self, text: bytes) -> None:
        """Write text where the array ends. Raises OSError, also where there is room for a part of it only."""
        file = self._opened()
        file.seek(self._end)
        while text:
            text = text[file.write(text) :]

    def _opened(self) -> FileIO:
        if self._file is None:
            self._file = FileIO(self.path, "r+")
        return self._file

    def _replace(self) -> None:
        """Replace the file by what there is. Raises OSError, and leaves the file as it was."""
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
