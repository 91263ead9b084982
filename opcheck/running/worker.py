"""A worker process of `opcheck run`: redirects its output, records its activity, ends when a case takes too long."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opcheck.running.note import Note
from opcheck.running.watchdog import ABANDONED, NOTE, Doing, Sign


class Worker:
    """This process, as a worker that a watchdog monitors through a lifeline file. Its settings are changed for good."""

    def __init__(self, lifeline: Path, seconds: float | None) -> None:
        """Set up the process and redirect its output. Interrupts are ignored: the controlling process ends its workers.

        seconds: the time limit of a case. None: no limit.
        """
        self._seconds, self._abandoned = seconds, lifeline.parent / ABANDONED
        self._lifeline = os.open(lifeline, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._length = 0
        self.note = Note(lifeline.with_suffix(NOTE))
        """The current step of the case."""
        self._trace = lifeline.with_suffix(".trace").open("w")  # for tracebacks by faulthandler
        self._say("starting")
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.disable()  # objects created before the first case are kept: collecting would take 1/4 of the start-up time
        # The output of operators is not shown, unless the process dies: the output may contain the reason.
        self._output = os.open(lifeline.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor in (1, 2):
            os.dup2(self._output, descriptor)

    def imports(self, what: str) -> None:
        """Record that names in specs are being imported, since an import can end the process."""
        faulthandler.enable(file=self._trace, all_threads=False)  # overrides the set-up by pytest
        self._forget_output()
        self._say("starting", what)

    def settle(self) -> None:
        """Prepare for cases. Exclude all existing objects from garbage collection: they live until the process ends."""
        gc.freeze()
        gc.enable()
        self._say("idle")

    @contextmanager
    def busy(self, case: str, broken_by: str = "") -> Iterator[None]:
        """Record that a case runs. If it exceeds the time limit, even in C, write a traceback and end the process.

        broken_by: the id of the case that has broken this process; empty if there is none. A broken process ends, and
        another process runs the case.
        """
        if broken_by:
            self._say("broken", broken_by)
            os._exit(1)
        self._forget_output()
        if self._seconds:  # by a thread that does not need the GIL, which an operator that hangs in C may hold
            faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._trace)
        self.note.write("")
        self._say("case", case)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            self._say("idle", case)

    def has_abandoned(self, name: str) -> bool:
        """Return whether further cases of an operator on a device must not be run. name: the `hazard` of the cases."""
        return self._abandoned.exists() and name in self._abandoned.read_text(encoding="utf-8").splitlines()

    def leave(self) -> None:
        """Make the process exit quickly, without garbage collection."""
        gc.freeze()

    def _say(self, doing: Doing, what: str = "") -> None:
        """Record the new activity of the process in its lifeline. Called often, so it writes only a few bytes."""
        text = json.dumps(vars(Sign(os.getpid(), doing, what, time.monotonic()))).encode()
        os.pwrite(self._lifeline, text.ljust(self._length), 0)
        self._length = len(text)

    def _forget_output(self) -> None:
        if os.fstat(self._output).st_size:
            os.ftruncate(self._output, 0)
