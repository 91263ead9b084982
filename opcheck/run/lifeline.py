"""What a worker process is doing, in a file that another process can read when the worker no longer answers."""

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
"""starting: imports what specs name; case: runs one; idle: between cases; spoilt: a case left something behind that
cannot be put back, so that the process has to go."""

ASK_FOR_TRACEBACK: int | None = getattr(signal, "SIGUSR1", None)
"""The signal at which a worker writes down where it is, also while it hangs in C. None on Windows."""


@dataclass(frozen=True)
class Sign:
    """What a worker was doing when it last said so."""

    pid: int
    doing: Doing
    what: str = ""
    """Node id of the case that runs, or ran last; the name that is being imported."""
    since: float = 0.0
    """`time.monotonic()`, in seconds, which all processes of a machine share."""


class Lifeline:
    """The worker's end. It writes a few bytes whenever it begins and ends a case."""

    def __init__(self, path: Path) -> None:
        """Open the files. From now on a crash of the process leaves its traceback there."""
        self._file: Any = open(path, "wb", buffering=0)  # noqa: SIM115 - stays open as long as the process
        self._trace: Any = open(trace_path(path), "w")  # noqa: SIM115
        self.output = path.with_suffix(".out")
        self._length = 0
        self.say("starting")

    def say(self, doing: Doing, what: str = "") -> None:
        """Tell what the process does from now on."""
        text = json.dumps({"pid": os.getpid(), "doing": doing, "what": what, "since": time.monotonic()}).encode()
        padded = text.ljust(self._length)
        self._length = len(text)
        os.pwrite(self._file.fileno(), padded, 0)

    def catch_crashes(self) -> None:
        """Let Python write down where the process crashed, or where it is when it is asked."""
        faulthandler.enable(file=self._trace, all_threads=False)
        if ASK_FOR_TRACEBACK is not None:
            faulthandler.register(ASK_FOR_TRACEBACK, file=self._trace, all_threads=False)


def trace_path(path: Path) -> Path:
    """Return the file of tracebacks that belongs to a lifeline."""
    return path.with_suffix(".trace")


def read_output(path: Path, most: int = 2000) -> str:
    """Return the end of what a worker has printed since its last case began; an empty string for nothing."""
    try:
        text = path.with_suffix(".out").read_bytes()
    except OSError:
        return ""
    return text[-most:].decode(errors="backslashreplace").strip()


def read_sign(path: Path) -> Sign | None:
    """Return what a worker last said; None where it has not yet said anything, or is just writing."""
    try:
        return Sign(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def read_trace(path: Path, start: int = 0, most: int = 20) -> str:
    """Return the traceback that a worker left, innermost frame first; an empty string for none.

    start: bytes at the beginning of its file that are about something else. It is cut where opcheck calls the
    operator: what led there is the same for all.
    """
    try:
        lines = trace_path(path).read_bytes()[start:].decode(errors="backslashreplace").splitlines()
    except OSError:
        return ""
    shown = [line for line in lines if line.strip() and not line.startswith("Extension modules:")]
    own = next((index for index, line in enumerate(shown) if f'File "{PACKAGE}{os.sep}' in line), len(shown))
    return "\n".join(shown[:own][:most] + (["  ..."] if own > most else []))
