"""Watches worker processes: kills those that use too much memory, and children left behind, and finds why one ended.

Each worker records its current activity in a file, its lifeline, which can be read after the worker hangs or dies.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from opcheck.text import ending

PACKAGE = Path(__file__).resolve().parent.parent

Doing = Literal["starting", "case", "idle", "broken"]
"""The activity of a worker. starting: it imports the modules that specs name. case: it runs a case. idle: it is between
cases. broken: it ends, since a case has changed something that cannot be restored."""

TIMED_OUT = "Timeout ("
"""The first characters of a traceback that faulthandler writes when a case exceeds its time limit."""


@dataclass(frozen=True)
class Sign:
    """The last record in a worker's lifeline."""

    pid: int
    doing: Doing
    what: str = ""
    """The node id of the current or last case; while starting, the names that are being imported; if broken, the id of
    the case at fault."""
    since: float = 0.0
    """The start time of the case, by `time.monotonic()`, which all processes of a machine share."""
    step: str = ""
    """The current step of the case."""


NO_SIGN = Sign(0, "starting")
"""The sign of a worker that has not recorded anything."""

ABANDONED = "abandoned"
"""The file that lists the operators, each on a device, whose remaining cases are not run."""

IMPORTING = 30.0
"""The least time limit for imports, in seconds. They may start a device, which takes longer than a case."""

PERIOD = 0.1
"""Seconds between two checks of the workers."""

PATIENCE = 2.0
"""Seconds to wait for a process to end after it has closed its connection."""


@dataclass(frozen=True)
class Death:
    """Why a worker has ended, and what it was doing."""

    cause: str
    """The reason, in one line."""
    sign: Sign = NO_SIGN
    trace: str = ""
    """The traceback by faulthandler, and the last output of the worker."""
    seconds: float = 0.0
    """The run time of the case, in seconds; 0 if no case was running."""
    is_time_out: bool = False
    """Whether the worker ended because its case exceeded the time limit."""


class Watchdog:
    """Watches workers through their lifeline files, in a thread."""

    def __init__(self, folder: Path, seconds: float | None = None, memory: int | None = None) -> None:
        """Create a watchdog. folder: the folder of the lifelines.

        seconds, memory: the time limit of a case, and the memory limit of its process in MiB. None: no limit.
        """
        self.folder, self.seconds, self.memory = folder, seconds, memory
        self._killed: dict[str, str] = {}
        """Why workers were killed, by name of the worker."""
        self._ended = set[str]()
        """The names of the workers that have ended, with the processes that they had started."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="opcheck watchdog", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def kill_busy(self) -> None:
        """Kill every worker that still runs a case."""
        for _, sign in self._signs():
            if sign.doing == "case":
                with suppress(psutil.Error):  # it has ended already
                    psutil.Process(sign.pid).kill()

    def stop(self) -> None:
        """Stop watching, and kill every worker that still runs a case, and the processes that workers have started."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self.kill_busy()
        for _, sign in self._signs():
            _kill_group(sign.pid)

    def path_of(self, worker: str) -> Path:
        """Return the lifeline file of a worker."""
        return self.folder / f"{worker}.sign"

    def give_up(self, name: str) -> None:
        """Stop all workers from running further cases of an operator on a device. name: the `hazard` of its cases."""
        with (self.folder / ABANDONED).open("a", encoding="utf-8") as file:
            file.write(name + "\n")

    def death_of(self, worker: str) -> Death:
        """Return why a worker has ended, and what it was doing."""
        path = self.path_of(worker)
        cause = self._killed.get(worker) or _ending(read_sign(path).pid)
        sign = read_sign(path)  # read again: the worker has ended, and its record is final
        # The traceback of a fork that has crashed may come before that of the worker.
        is_time_out = any(line.startswith(TIMED_OUT) for line in _text(path, ".trace").splitlines())
        if is_time_out:
            cause = f"time-out: it takes longer than {limit_of(sign.doing, self.seconds):g} s"
        if sign.doing == "case" and sign.step:
            cause += f", at {sign.step}"
        if sign.doing == "idle":
            cause += f", before this case began, after {sign.what}" if sign.what else ", before its first case"
        output = "\n".join(filter(None, [read_trace(path), read_output(path)]))
        took = time.monotonic() - sign.since if sign.doing == "case" else 0.0
        return Death(cause, sign, output, took, is_time_out)

    def _signs(self) -> Iterator[tuple[str, Sign]]:
        """Yield the name and the sign of each worker, except those that have recorded nothing or have ended."""
        for path in self.folder.glob("*.sign"):
            if path.stem not in self._ended and (sign := read_sign(path)).pid:
                yield path.stem, sign

    def _watch(self) -> None:
        while not self._stopped.wait(PERIOD):
            for name, sign in self._signs():
                with suppress(psutil.Error):
                    self._look_at(name, sign.doing, psutil.Process(sign.pid))

    def _look_at(self, name: str, doing: Doing, process: psutil.Process) -> None:
        """Kill a worker that uses too much memory, and the children that an ended worker leaves."""
        most = self.memory
        if process.status() == psutil.STATUS_ZOMBIE:
            # A process that it has forked keeps its connection open: without this, nobody would notice its end.
            _kill_group(process.pid)
            self._ended.add(name)
        elif doing == "case" and most and name not in self._killed and process.memory_info().rss > most * 2**20:
            self._killed[name] = f"out of memory: the process takes more than {most} MiB"
            process.kill()


def _kill_group(worker: int) -> None:
    """Kill the process group of a worker: the worker, and the processes that it has started. worker: its process id."""
    if worker:  # 0 would be the group of this process
        with suppress(OSError):  # the group is empty, or the worker has no group of its own
            os.killpg(worker, signal.SIGKILL)


def limit_of(doing: Doing, seconds: float | None) -> float | None:
    """Return the time limit of an activity of a worker. seconds: that of a case; None: no limit."""
    return max(seconds, IMPORTING) if seconds and doing == "starting" else seconds


def _ending(pid: int) -> str:
    """Return how a child process has ended. Does not reap the process: execnet, which started it, does."""
    if not pid or not hasattr(os, "waitid"):  # macOS, before Python 3.13
        return "the process is gone"
    deadline = time.monotonic() + PATIENCE
    status = None
    while status is None and time.monotonic() < deadline:
        try:
            status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except OSError:
            return "the process is gone"
        if status is None:
            time.sleep(0.02)
    if status is None:
        return "the process closed its connection"
    has_exited = status.si_code == os.CLD_EXITED
    return ending(status.si_status if has_exited else -status.si_status)


def default_memory(workers: int) -> int:
    """Return the default memory limit of a worker, in MiB. Together, workers may use 80 % of the available memory."""
    return int(psutil.virtual_memory().available * 0.8 / workers / 2**20)


def read_sign(path: Path) -> Sign:
    """Return the last record of a worker; `NO_SIGN` if there is none yet, or it is still being written."""
    try:
        return Sign(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return NO_SIGN


def read_output(path: Path, most: int = 2000) -> str:
    """Return the last `most` bytes of the output of a worker since its last case began."""
    return _text(path, ".out", most).strip()


def read_trace(path: Path, most: int = 20) -> str:
    """Return the traceback that a worker has left, innermost frame first; an empty string if there is none.

    The traceback ends where opcheck calls the operator, or after `most` lines. If there are several threads, it is that
    of the thread that runs the case.
    """
    title, *threads = re.split(r"^(?=Thread 0x)", _text(path, ".trace"), flags=re.MULTILINE)
    own = f'File "{PACKAGE}{os.sep}'
    thread = next((thread for thread in reversed(threads) if own in thread), threads[-1]) if threads else ""
    lines = [line for line in (title + thread).splitlines() if line.strip()]
    shown = [line for line in lines if not line.startswith(("Extension modules:", "Thread 0x"))]
    end = next((index for index, line in enumerate(shown) if own in line), len(shown))
    return "\n".join(shown[:end][:most] + (["  ..."] if end > most else []))


def _text(path: Path, suffix: str, most: int = 0) -> str:
    """Return the text of a file beside a lifeline, or of its last `most` bytes; an empty string if there is none."""
    try:
        return path.with_suffix(suffix).read_bytes()[-most:].decode(errors="backslashreplace")
    except OSError:
        return ""
