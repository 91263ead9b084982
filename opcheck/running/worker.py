"""A worker process of `opcheck run`: redirects its output, records what it does, ends when a case takes too long."""

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
    """This process, which a watchdog looks after by its lifeline file. Its settings are changed for good."""

    def __init__(self, lifeline: Path, seconds: float | None) -> None:
        """Set up the process, and redirect its output. It ignores interrupts: the controlling process ends its workers.

        seconds: how long a case may take; None: as long as it likes.
        """
        self._seconds, self._abandoned = seconds, lifeline.parent / ABANDONED
        self._lifeline = os.open(lifeline, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._length = 0
        self.note = Note(lifeline.with_suffix(NOTE))
        """What the case is about to try."""
        self._trace = lifeline.with_suffix(".trace").open("w")  # where tracebacks go
        self._say("starting")
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.disable()  # what is created before the first case stays; collecting garbage would take a quarter of the time
        # The output of operators is not shown, but may tell why the process has ended.
        self._output = os.open(lifeline.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor in (1, 2):
            os.dup2(self._output, descriptor)

    def imports(self, what: str) -> None:
        """Record that names in specs are being imported, since an import can end the process."""
        faulthandler.enable(file=self._trace, all_threads=False)  # overrides what pytest has set up by now
        self._forget_output()
        self._say("starting", what)

    def settle(self) -> None:
        """Get ready for cases. The objects that exist are never collected: this process has no second session."""
        gc.freeze()
        gc.enable()
        self._say("idle")

    @contextmanager
    def busy(self, case: str, broken_by: str = "") -> Iterator[None]:
        """Record that a case runs. The process ends with a traceback where it takes too long, even in C.

        broken_by: the case that has broken this process. If there is one, the process ends, and another one takes over.
        """
        if broken_by:
            self._say("broken", broken_by)
            os._exit(1)
        self._forget_output()
        if self._seconds:  # a thread that needs no lock of Python's, which an operator that hangs in C may hold
            faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._trace)
        self.note.write("")
        self._say("case", case)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            self._say("idle", case)

    def has_abandoned(self, name: str) -> bool:
        """Tell whether no further case of an operator is to be run, on a device. name: that of both."""
        return self._abandoned.exists() and name in self._abandoned.read_text(encoding="utf-8").splitlines()

    def leave(self) -> None:
        """Make the process end soon: no garbage is collected at exit."""
        gc.freeze()

    def _say(self, doing: Doing, what: str = "") -> None:
        """Record what the process does from now on: a few bytes, whenever a case begins or ends."""
        text = json.dumps(vars(Sign(os.getpid(), doing, what, time.monotonic()))).encode()
        os.pwrite(self._lifeline, text.ljust(self._length), 0)
        self._length = len(text)

    def _forget_output(self) -> None:
        if os.fstat(self._output).st_size:
            os.ftruncate(self._output, 0)
