"""A one-line file with the sample that a process is trying, to report the sample if the process dies."""

from __future__ import annotations

import mmap
from pathlib import Path

LONGEST = 200
"""The maximum length of the line, in bytes."""


class Note:
    """A file of one line, written through a memory map: other processes can read the line even if this one dies."""

    def __init__(self, file: Path) -> None:
        """Create the file, with an empty line."""
        file.write_bytes(bytes(LONGEST))
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), LONGEST)

    def write(self, line: str) -> None:
        """Replace the line. It is cut at `LONGEST` bytes."""
        self._memory[:] = line.encode(errors="backslashreplace")[:LONGEST].ljust(LONGEST, b"\0")


def read_note(file: Path) -> str:
    """Return the line that a process has written last; an empty string if there is none."""
    try:
        return file.read_bytes().rstrip(b"\0").decode(errors="ignore")
    except OSError:
        return ""
