"""What a process does to itself that only runs cases."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from opcheck.running.watchdog import GivenUp, Lifeline, Limits

PERIOD = 0.25
"""Seconds between two looks of a process at its own memory."""


class OwnProcess:
    """This process, which only runs cases, so that its settings can be changed for good."""

    def __init__(self, seconds: float | None, trace: Any) -> None:
        """Set up the process. It ignores interrupts: the controlling process ends its workers.

        seconds: how long a case may take, None: as long as it likes. trace: the file for tracebacks of longer ones.
        """
        self._seconds, self._trace = seconds, trace
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.disable()  # what is created before the first case stays; collecting garbage would take a quarter of the time

    def imports(self, what: str) -> None:
        """Record that names in specs are being imported, since an import can end the process."""

    def settle(self) -> None:
        """Get ready for cases. From now on, garbage is collected."""
        gc.enable()

    @contextmanager
    def busy(self, case: str, broken_by: str = "") -> Iterator[None]:
        """Record that a case runs. The process ends with a traceback where it takes too long, even in C.

        broken_by: the case that has broken this process. If there is one, the process ends, and another one takes over.
        """
        if broken_by:
            os._exit(1)
        if self._seconds:  # a thread that needs no lock of Python's, which an operator that hangs in C may hold
            faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._trace)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def has_given_up(self, name: str) -> bool:
        """Tell whether no further case of an operator is to be run, on a device. name: that of both."""
        return False

    def leave(self) -> None:
        """Get ready for the end of a session of pytest."""


class Worker(OwnProcess):
    """This process, as a worker of `opcheck run`, which a watchdog looks after by its lifeline file."""

    def __init__(self, lifeline: Path, seconds: float | None) -> None:
        """Set up the process, and redirect its output."""
        self.lifeline = Lifeline(lifeline)
        super().__init__(seconds, self.lifeline.trace)
        self._given_up = GivenUp(lifeline.parent)
        # The output of operators is not shown, but may tell why the process has ended.
        self._output = os.open(self.lifeline.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor in (1, 2):
            os.dup2(self._output, descriptor)

    def imports(self, what: str) -> None:
        """Record that names in specs are being imported, since an import can end the process."""
        self.lifeline.catch_crashes()  # overrides what pytest has set up by now
        self._forget_output()
        self.lifeline.say("starting", what)

    def settle(self) -> None:
        """Get ready for cases. The objects that exist are never collected: this process has no second session."""
        gc.freeze()
        super().settle()
        self.lifeline.say("idle")

    @contextmanager
    def busy(self, case: str, broken_by: str = "") -> Iterator[None]:
        """Record that a case runs."""
        if broken_by:
            self.lifeline.say("broken", broken_by)
        self._forget_output()
        with super().busy(case, broken_by):
            self.lifeline.say("case", case)
            try:
                yield
            finally:
                self.lifeline.say("idle", case)

    def has_given_up(self, name: str) -> bool:
        """Tell whether no further case of an operator is to be run, on a device. name: that of both."""
        return name in self._given_up

    def leave(self) -> None:
        """Make the process end soon: no garbage is collected at exit."""
        gc.freeze()

    def _forget_output(self) -> None:
        if os.fstat(self._output).st_size:
            os.ftruncate(self._output, 0)


class SelfWatched(OwnProcess):
    """This process, as a task of Ray has it: no watchdog looks after it, and it ends itself for too much memory.

    It tells nobody why it ends: its cases are run again, under a watchdog.
    """

    def __init__(self, limits: Limits) -> None:
        """Set up the process, and start to watch its memory."""
        super().__init__(limits.seconds, open(os.devnull, "w"))  # noqa: SIM115 - open until the process ends
        if limits.memory is not None:
            threading.Thread(target=_end_beyond, args=(limits.memory,), daemon=True).start()


def _end_beyond(most: int) -> None:
    """End this process once it takes more memory, in MiB."""
    own, pause = psutil.Process(), threading.Event()
    while not pause.wait(PERIOD):
        if own.memory_info().rss > most * 2**20:
            os._exit(1)
