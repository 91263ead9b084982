"""The JSON report of a run, while it runs: the file on disk is valid after every record."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

from opcheck.report.model import Run, plain
from opcheck.report.writing import BETWEEN, END, head, is_stream, line, put

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class JsonReport:
    """Writes the records of one run. A crash of the process loses no finished record.

    Until the run has ended, its header says that it is not complete. If the disk is full, the file remains valid, and
    missing records are written once there is room. A stream, such as a pipe, gets the whole report when the run ends.
    """

    def __init__(self, path: Path, run: Run) -> None:
        """Create a report without records. Raises OSError if the file cannot be written."""
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder")
        self._is_stream = is_stream(path)
        self.path = path if self._is_stream else path.resolve()  # a symbolic link remains one
        self.run = run
        self.lines: dict[str, bytes] = {}
        """The records as text, by case id."""
        self.trouble: OSError | None = None
        """Why something is missing, if anything is."""
        self._missing: list[bytes] = []
        self._outdated = False
        """Whether the file contains something that has changed since: the header, or the first record of a case."""
        self._file: FileIO | None = None
        self._begin = 0
        """The offset of the first record."""
        self._end = 0
        """The offset of the next record, which overwrites the end of the file."""
        if not self._is_stream:
            self._replace()

    def begin(self, run: Run) -> None:
        """Replace the header by one that knows more."""
        self.run, self._outdated = run, True
        self._write()

    def add(self, record: Mapping[str, Any]) -> None:
        """Add a record and write it if possible. A later record of the same case replaces it."""
        text = line({**record, "run": 0})
        self._outdated |= record["id"] in self.lines
        self.lines[record["id"]] = text
        self._missing.append(text)
        if not (self._outdated and self.trouble):  # rewriting all of them for every case would take too long
            self._write()

    def finish(self, run: Run | None = None) -> str:
        """Write what is missing, and the header of a run that has ended.

        Returns what is wrong with the report, or an empty string if it is complete.
        """
        if self._is_stream:
            return self._end_stream(run or self.run)
        if self._missing:
            self._write()
        if run is not None and not self._missing:  # else the old header is the true one
            self.begin(run)
        try:
            if self._file is not None or self.trouble is None:
                os.fsync(self._opened().fileno())
        except OSError as error:
            if error.errno in NO_ROOM:  # some file systems report it only now
                self.trouble = error
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.trouble is None:
            return ""
        count = f"{len(self._missing)} of {len(self.lines)} records are missing: " if self._missing else ""
        return f"the report {self.path} is incomplete: {count}{self.trouble.strerror or self.trouble}"

    def _end_stream(self, run: Run) -> str:
        try:
            put(self.path, [head([plain(run)]), BETWEEN.join(self.lines.values()), END])
        except OSError as error:
            return f"the report {self.path} cannot be written: {error.strerror or error}"
        return ""

    def _write(self) -> None:
        """Write the missing records: append them, or replace the file if it is outdated."""
        if self._is_stream:
            return
        try:
            if self._outdated or not self.path.exists():
                self._replace()
            while self._missing:
                self._append(self._missing[0])
                del self._missing[0]
            self.trouble = None
        except OSError as error:
            self.trouble = error

    def _append(self, record: bytes) -> None:
        text = (BETWEEN if self._end > self._begin else b"") + record
        try:
            self._put(text + END)  # in one system call, so that neither a reader nor a crash finds half a record
        except OSError:
            with suppress(OSError):  # overwrites what was there before, which needs no room
                self._put(END)
                self._opened().truncate()
            raise
        self._end += len(text)

    def _put(self, text: bytes) -> None:
        """Write text at the end of the records. Raises OSError, even if there is room for a part of it."""
        file = self._opened()
        file.seek(self._end)
        while text:
            text = text[file.write(text) :]

    def _opened(self) -> FileIO:
        if self._file is None:
            self._file = FileIO(self.path, "r+")
        return self._file

    def _replace(self) -> None:
        """Replace the file by the header and all records. If that fails, raises OSError and leaves it unchanged."""
        first, records = head([plain(self.run)]), BETWEEN.join(self.lines.values())
        put(self.path, [first, records, END])
        if self._file is not None:
            self._file.close()
        self._file = None
        self._begin, self._end = len(first), len(first) + len(records)
        self._missing.clear()
        self._outdated = False
