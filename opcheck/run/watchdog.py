"""Watches worker processes: kills those that hang or use too much memory, and finds out why a worker has ended."""

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
"""Seconds between two checks of the workers."""

PATIENCE = 2.0
"""Seconds that a process gets to end after its pipe has closed, or to write a traceback."""


TIME_OUT = "time-out"
"""What the cause of a death begins with if the case took too long."""


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
    """Whether it was killed because the case took too long."""


class Watchdog:
    """Watches workers through their lifeline files, in a thread."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder = folder
        self.limits = limits
        self._killed: dict[str, str] = {}
        """Why a worker was killed, by name."""
        self._old: dict[str, int] = {}
        """The bytes of a worker's traceback file about cases that ended after all, by name."""
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
        if sign is not None and sign.doing == "idle":
            cause += f", before this case began, after {sign.what}" if sign.what else ", before its first case"
        output = [read_trace(path, self._old.get(worker, 0)), read_output(path)]
        took = time.monotonic() - sign.since if sign is not None and sign.doing == "case" else 0.0
        return Death(cause, sign, "\n".join(filter(None, output)), took, cause.startswith(TIME_OUT))

    def _watch(self) -> None:
        while not self._stopped.wait(PERIOD):
            for path in self.lifelines():
                sign = read_sign(path)
                if sign is not None and sign.doing == "case" and path.stem not in self._killed:
                    self._look_at(path, sign)

    def _look_at(self, path: Path, sign: Sign) -> None:
        limits = self.limits
        if limits.seconds is not None and time.monotonic() - sign.since > limits.seconds:
            if _has_ended(sign.pid) or not self._asked_for_trace(path, sign):
                return  # the process has ended, whose end says more than the time does, or the case has
            cause = f"{TIME_OUT}: it takes longer than {limits.seconds:g} s"
        elif limits.memory is not None and _resident(sign.pid) > limits.memory:
            cause = f"out of memory: the process takes more than {limits.memory} MiB"
        else:
            return
        self._killed[path.stem] = cause
        _kill(sign.pid)

    def _asked_for_trace(self, path: Path, sign: Sign) -> bool:
        """Ask a process for a traceback. Tell whether it is still busy with the same case."""
        if ASK_FOR_TRACEBACK is not None:
            try:
                os.kill(sign.pid, ASK_FOR_TRACEBACK)
            except OSError:
                return False
            deadline = time.monotonic() + PATIENCE
            while not read_trace(path, self._old.get(path.stem, 0)) and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(0.05)  # for the rest of the traceback
        if read_sign(path) == sign:
            return True
        self._old[path.stem] = trace_path(path).stat().st_size
        return False


def _has_ended(pid: int) -> bool:
    """Tell whether a process has ended, even if nobody has asked for its status yet."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return True


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
    """Return the default memory limit of each worker, in MiB. All together get four fifths of what is available."""
    return int(psutil.virtual_memory().available * 0.8 / workers / 2**20)
