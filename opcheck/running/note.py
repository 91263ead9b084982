"""A one-line file that says which sample a process is trying: whoever finds the process gone reads it."""

from __future__ import annotations

import mmap
from pathlib import Path

LONGEST = 200
"""The most bytes of a line."""


class Note:
    """A file of one line, in memory that other processes can read."""

    def __init__(self, file: Path) -> None:
        """Make the file, with an empty line."""
        file.write_bytes(bytes(LONGEST))
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), LONGEST)

    def write(self, line: str) -> None:
        """Replace the line."""
        self._memory[:] = line.encode(errors="backslashreplace")[:LONGEST].ljust(LONGEST, b"\0")


def read_note(file: Path) -> str:
    """Return what a process has written last; an empty string if it has written nothing."""
    try:
        return file.read_bytes().rstrip(b"\0").decode(errors="ignore")
    except OSError:
        return ""
