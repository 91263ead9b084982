"""Watches worker processes from outside: ends those that hang or take too much memory, and says why one is gone."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from opcheck.run.lifeline import ASK_FOR_TRACEBACK, Sign, read_output, read_sign, read_trace, trace_path

PERIOD = 0.1
"""Seconds between two looks."""

PATIENCE = 2.0
"""Seconds that a process has to be gone after its pipe was closed, and to write down where it hangs."""


@dataclass(frozen=True)
class Limits:
    """What a case may take. None: as much as it likes."""

    seconds: float | None = None
    memory: int | None = None
    """MiB that its process may hold."""


@dataclass(frozen=True)
class Death:
    """Why a worker is gone, and what it was doing."""

    cause: str
    """In one line."""
    sign: Sign | None = None
    trace: str = ""
    """Where it was, as Python's faulthandler tells, and the last that it printed."""


class Watchdog:
    """Looks after workers by their lifelines, in a thread."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder = folder
        self.limits = limits
        self._killed: dict[str, str] = {}
        """Why a worker was ended, by name."""
        self._old: dict[str, int] = {}
        """Bytes of a worker's tracebacks that are about a case which came to its end after all."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="opcheck watchdog", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking, and end every worker that still runs a case: nobody waits for it."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        for path in self.lifelines():
            sign = read_sign(path)
            if sign is not None and sign.doing == "case":
                _kill(sign.pid)

    def lifelines(self) -> list[Path]:
        """Return the files of all workers that there have been."""
        return sorted(self.folder.glob("*.sign"))

    def path_of(self, worker: str) -> Path:
        """Return the file of a worker."""
        return self.folder / f"{worker}.sign"

    def death_of(self, worker: str) -> Death:
        """Return why a worker is gone."""
        path = self.path_of(worker)
        sign = read_sign(path)
        cause = self._killed.get(worker) or ("the process is gone" if sign is None else _ending(sign.pid))
        if sign is not None and sign.doing == "idle":
            cause += f", before this case began, after {sign.what}" if sign.what else ", before its first case"
        said = [read_trace(path, self._old.get(worker, 0)), read_output(path)]
        return Death(cause, sign, "\n".join(filter(None, said)))

    def _watch(self) -> None:
        while not self._stopped.wait(PERIOD):
            for path in self.lifelines():
                sign = read_sign(path)
                if sign is not None and sign.doing == "case" and path.stem not in self._killed:
                    self._look_at(path, sign)

    def _look_at(self, path: Path, sign: Sign) -> None:
        limits = self.limits
        if limits.seconds is not None and time.monotonic() - sign.since > limits.seconds:
            if not self._asked_for_trace(path, sign):
                return  # the case has come to its end meanwhile
            cause = f"time-out: it takes longer than {limits.seconds:g} s"
        elif limits.memory is not None and _resident(sign.pid) > limits.memory:
            cause = f"out of memory: the process takes more than {limits.memory} MiB"
        else:
            return
        self._killed[path.stem] = cause
        _kill(sign.pid)

    def _asked_for_trace(self, path: Path, sign: Sign) -> bool:
        """Let a process that hangs write down where; tell whether it is still busy with the same case."""
        if ASK_FOR_TRACEBACK is not None:
            try:
                os.kill(sign.pid, ASK_FOR_TRACEBACK)
            except OSError:
                return False
            deadline = time.monotonic() + PATIENCE
            while not read_trace(path, self._old.get(path.stem, 0)) and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(0.05)  # the rest of what it writes
        if read_sign(path) == sign:
            return True
        self._old[path.stem] = trace_path(path).stat().st_size
        return False


def _resident(pid: int) -> float:
    """Return the memory that a process holds, in MiB; 0 where it is gone."""
    try:
        return float(psutil.Process(pid).memory_info().rss) / 2**20
    except psutil.Error:
        return 0.0


def _kill(pid: int) -> None:
    try:
        psutil.Process(pid).kill()
    except psutil.Error:
        return  # gone already


def _ending(pid: int) -> str:
    """Return how a child process has ended. It is not reaped: that is for who started it."""
    if not hasattr(os, "waitid"):  # Windows
        return "the process is gone"
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except OSError:
            return "the process is gone"
        if found is not None:
            return _told(found.si_code == os.CLD_EXITED, found.si_status)
        time.sleep(0.02)
    return "the process closed its connection"


def _told(exited: bool, status: int) -> str:
    if exited:
        return f"the process exited, with status {status}"
    name = signal.Signals(status).name if status in signal.Signals._value2member_map_ else f"signal {status}"
    if name == "SIGKILL":
        return "the process was killed (SIGKILL), as by a system that runs out of memory"
    return f"the process crashed ({name})"


def default_memory(workers: int) -> int:
    """Return the MiB that each of some workers may take by default: together, four fifths of what is available."""
    return int(psutil.virtual_memory().available * 0.8 / workers / 2**20)
