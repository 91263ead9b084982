"""Records what a worker process is doing, in a file that can be read when the worker no longer answers."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

PACKAGE = Path(__file__).resolve().parent.parent

Doing = Literal["starting", "case", "idle", "spoilt"]
"""starting: it imports what specs name; case: it runs a case; idle: it is between cases; spoilt: a case has changed
something that cannot be restored, so the process must end."""

ASK_FOR_TRACEBACK: int | None = getattr(signal, "SIGUSR1", None)
"""The signal that makes a worker write a traceback, even if it hangs in C. None on Windows."""


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
        self._trace: Any = open(trace_path(path), "w")  # noqa: SIM115
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
        """Let Python write a traceback if the process crashes or is asked for one."""
        faulthandler.enable(file=self._trace, all_threads=False)
        if ASK_FOR_TRACEBACK is not None:
            faulthandler.register(ASK_FOR_TRACEBACK, file=self._trace, all_threads=False)


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


def read_trace(path: Path, start: int = 0, most: int = 20) -> str:
    """Return the traceback that a worker has left, innermost frame first; an empty string if there is none.

    It ends where opcheck calls the operator.

    start: the number of bytes to skip, which are about an earlier case.
    """
    try:
        lines = trace_path(path).read_bytes()[start:].decode(errors="backslashreplace").splitlines()
    except OSError:
        return ""
    shown = [line for line in lines if line.strip() and not line.startswith("Extension modules:")]
    own = next((index for index, line in enumerate(shown) if f'File "{PACKAGE}{os.sep}' in line), len(shown))
    return "\n".join(shown[:own][:most] + (["  ..."] if own > most else []))
