"""Watches worker processes: kills those that use too much memory, and finds out why a worker has ended."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from opcheck.running.lifeline import Sign, has_timed_out, read_output, read_sign, read_trace

PERIOD = 0.1
"""Seconds between two checks of the workers."""

PATIENCE = 2.0
"""Seconds that a process gets to end after its pipe has closed."""


@dataclass(frozen=True)
class Limits:
    """How much time and memory a case may use. None: no limit."""

    seconds: float | None = None
    memory: int | None = None
    """The memory of its process, in MiB."""


@dataclass(frozen=True)
class Death:
    """Why a worker has ended, and what it was doing."""

    cause: str
    """The reason, in one line."""
    sign: Sign | None = None
    trace: str = ""
    """The traceback by faulthandler, and the last output."""
    seconds: float = 0.0
    """How long the case had run, if one did."""
    is_time_out: bool = False
    """Whether it ended because the case took too long."""


class Watchdog:
    """Watches workers through their lifeline files, in a thread."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder = folder
        self.limits = limits
        self._killed: dict[str, str] = {}
        """Why a worker was killed, by name."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="opcheck watchdog", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching, and kill every worker that still runs a case."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        for path in self.lifelines():
            sign = read_sign(path)
            if sign is not None and sign.doing == "case":
                _kill(sign.pid)

    def lifelines(self) -> list[Path]:
        """Return the lifeline files of all workers, past ones included."""
        return sorted(self.folder.glob("*.sign"))

    def path_of(self, worker: str) -> Path:
        """Return the lifeline file of a worker."""
        return self.folder / f"{worker}.sign"

    def death_of(self, worker: str) -> Death:
        """Return why a worker has ended."""
        path = self.path_of(worker)
        sign = read_sign(path)
        cause = self._killed.get(worker) or ("the process is gone" if sign is None else _ending(sign.pid))
        sign, is_time_out = read_sign(path), has_timed_out(path)  # now that it has written all that it writes
        if is_time_out:
            cause = f"time-out: it takes longer than {self.limits.seconds:g} s"
        if sign is not None and sign.doing == "idle":
            cause += f", before this case began, after {sign.what}" if sign.what else ", before its first case"
        output = [read_trace(path), read_output(path)]
        took = time.monotonic() - sign.since if sign is not None and sign.doing == "case" else 0.0
        return Death(cause, sign, "\n".join(filter(None, output)), took, is_time_out)

    def _watch(self) -> None:
        while not self._stopped.wait(PERIOD):
            for path in self.lifelines():
                sign = read_sign(path)
                if sign is not None and sign.doing == "case" and path.stem not in self._killed:
                    self._look_at(path, sign)

    def _look_at(self, path: Path, sign: Sign) -> None:
        most = self.limits.memory
        if most is not None and _resident(sign.pid) > most:
            self._killed[path.stem] = f"out of memory: the process takes more than {most} MiB"
            _kill(sign.pid)


def _resident(pid: int) -> float:
    """Return the resident memory of a process in MiB; 0 if it has ended."""
    try:
        return float(psutil.Process(pid).memory_info().rss) / 2**20
    except psutil.Error:
        return 0.0


def _kill(pid: int) -> None:
    try:
        psutil.Process(pid).kill()
    except psutil.Error:
        return  # it has ended already


def _ending(pid: int) -> str:
    """Return how a child process has ended. It is not reaped: execnet, which started it, does that."""
    if not hasattr(os, "waitid"):  # Windows
        return "the process is gone"
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except OSError:
            return "the process is gone"
        if status is not None:
            return _describe(status.si_code == os.CLD_EXITED, status.si_status)
        time.sleep(0.02)
    return "the process closed its connection"


def _describe(exited: bool, status: int) -> str:
    if exited:
        return f"the process exited, with status {status}"
    name = signal.Signals(status).name if status in signal.Signals._value2member_map_ else f"signal {status}"
    if name == "SIGKILL":
        return "the process was killed (SIGKILL), as by a system that runs out of memory"
    return f"the process crashed ({name})"


def default_memory(workers: int) -> int:
    """Return the default memory limit of each worker, in MiB. All together get four fifths of what is available."""
    return int(psutil.virtual_memory().available * 0.8 / workers / 2**20)
