"""Records what a worker process is doing, in a file that can be read when the worker no longer answers."""

from __future__ import annotations

import faulthandler
import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

PACKAGE = Path(__file__).resolve().parent.parent

Doing = Literal["starting", "case", "idle", "broken"]
"""starting: it imports what specs name; case: it runs a case; idle: it is between cases; broken: a case has changed
something that cannot be restored, so the process must end."""

TIMED_OUT = "Timeout ("
"""What faulthandler begins the tracebacks with that it writes before it ends a process."""


@dataclass(frozen=True)
class Sign:
    """What a worker was doing when it last wrote to its file."""

    pid: int
    doing: Doing
    what: str = ""
    """The node id of the case that runs, or ran last; while starting, the name that is being imported."""
    since: float = 0.0
    """When that began, by `time.monotonic()`, which all processes of a machine share."""


class Lifeline:
    """The file, as the worker sees it. It writes a few bytes when a case begins and when it ends."""

    def __init__(self, path: Path) -> None:
        """Open the files."""
        self._file: Any = open(path, "wb")  # noqa: SIM115 - open until the process ends
        self.trace: Any = open(trace_path(path), "w")  # noqa: SIM115
        """Where tracebacks go."""
        self.output = path.with_suffix(".out")
        self._length = 0
        self.say("starting")

    def say(self, doing: Doing, what: str = "") -> None:
        """Record what the process does from now on."""
        text = json.dumps({"pid": os.getpid(), "doing": doing, "what": what, "since": time.monotonic()}).encode()
        padded = text.ljust(self._length)
        self._length = len(text)
        os.pwrite(self._file.fileno(), padded, 0)

    def catch_crashes(self) -> None:
        """Let Python write a traceback if the process crashes."""
        faulthandler.enable(file=self.trace, all_threads=False)


class GivenUp:
    """The operators of which no further case is run, in a file that the controlling process writes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "given_up"

    def add(self, name: str) -> None:
        """Run no further case of an operator on a device, which the name tells."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(name + "\n")

    def __contains__(self, name: str) -> bool:
        return self._path.exists() and name in self._path.read_text(encoding="utf-8").splitlines()


def trace_path(path: Path) -> Path:
    """Return the file for tracebacks that belongs to a lifeline."""
    return path.with_suffix(".trace")


def read_output(path: Path, most: int = 2000) -> str:
    """Return the end of what a worker has printed since its last case began."""
    try:
        text = path.with_suffix(".out").read_bytes()
    except OSError:
        return ""
    return text[-most:].decode(errors="backslashreplace").strip()


def read_sign(path: Path) -> Sign | None:
    """Return what a worker last recorded; None if it has recorded nothing yet, or is about to."""
    try:
        return Sign(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def has_timed_out(path: Path) -> bool:
    """Tell whether a worker ended itself because a case took too long."""
    return _traces(path).startswith(TIMED_OUT)


def read_trace(path: Path, most: int = 20) -> str:
    """Return the traceback that a worker has left, innermost frame first; an empty string if there is none.

    It ends where opcheck calls the operator. Of several threads it is that of the one that runs the case.
    """
    title, *threads = re.split(r"^(?=Thread 0x)", _traces(path), flags=re.MULTILINE)
    own = f'File "{PACKAGE}{os.sep}'
    thread = next((thread for thread in reversed(threads) if own in thread), threads[-1]) if threads else ""
    lines = [line for line in (title + thread).splitlines() if line.strip()]
    shown = [line for line in lines if not line.startswith(("Extension modules:", "Thread 0x"))]
    end = next((index for index, line in enumerate(shown) if own in line), len(shown))
    return "\n".join(shown[:end][:most] + (["  ..."] if end > most else []))


def _traces(path: Path) -> str:
    try:
        return trace_path(path).read_bytes().decode(errors="backslashreplace")
    except OSError:
        return ""
