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
from typing import Any

from opcheck.running.watchdog import ABANDONED, Sign, limit_of


class Worker:
    """This process, as a worker that a watchdog monitors through a lifeline file. Its settings are changed for good."""

    def __init__(self, lifeline: Path, seconds: float | None) -> None:
        """Set up the process and redirect its output. Interrupts are ignored: the controlling process ends its workers.

        The process gets a group of its own, so that the processes that operators start can be ended with it.

        seconds: the time limit of a case. None: no limit.
        """
        os.setpgrp()
        self._seconds, self._abandoned = seconds, lifeline.parent / ABANDONED
        self._lifeline = os.open(lifeline, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._length = 0
        self._sign = vars(Sign(os.getpid(), "starting"))
        self._trace = lifeline.with_suffix(".trace").open("w")  # for tracebacks by faulthandler
        self._say()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.disable()  # objects created before the first case are kept: collecting would take 1/4 of the start-up time
        # The output of operators is not shown, unless the process dies: the output may contain the reason.
        self._output = os.open(lifeline.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._redirect()

    @contextmanager
    def imports(self, what: str) -> Iterator[None]:
        """Record that names in specs are being imported, since an import can end the process, or exceed a limit."""
        faulthandler.enable(file=self._trace, all_threads=False)  # overrides the set-up by pytest
        self._forget_output()
        self._say(doing="starting", what=what)
        with self._limited(limit_of("starting", self._seconds)):
            yield

    def settle(self) -> None:
        """Prepare for cases. Exclude all existing objects from garbage collection: they live until the process ends."""
        gc.freeze()
        gc.enable()
        self._say(doing="idle", what="")

    @contextmanager
    def busy(self, case: str, broken_by: str = "") -> Iterator[None]:
        """Record that a case runs. If it exceeds the time limit, even in C, write a traceback and end the process.

        broken_by: the id of the case that has broken this process; empty if there is none. A broken process ends, and
        another process runs the case.
        """
        if broken_by:
            self._say(doing="broken", what=broken_by)
            os._exit(1)
        self._forget_output()
        self._say(doing="case", what=case, since=time.monotonic())
        try:
            with self._limited(self._seconds):
                yield
        finally:
            self._redirect()  # the operator may have closed its output, without which pytest fails
            self._say(doing="idle", step="")

    @contextmanager
    def _limited(self, seconds: float | None) -> Iterator[None]:
        """Write a traceback and end the process after a time limit. None: no limit."""
        if seconds:  # by a thread that does not need the GIL, which an operator that hangs in C may hold
            faulthandler.dump_traceback_later(seconds, exit=True, file=self._trace)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def note(self, step: str) -> None:
        """Record the current step of the case, such as the sample, to report it if the process dies."""
        self._say(step=step)

    def has_abandoned(self, name: str) -> bool:
        """Return whether further cases of an operator on a device must not be run. name: the `hazard` of the cases."""
        return self._abandoned.exists() and name in self._abandoned.read_text(encoding="utf-8").splitlines()

    def leave(self) -> None:
        """Make the process exit quickly, without garbage collection."""
        gc.freeze()

    def _say(self, **changes: Any) -> None:
        """Record changes of the `Sign` in the lifeline. Called often, so it writes only a few bytes."""
        self._sign.update(changes)
        text = json.dumps(self._sign).encode()
        os.pwrite(self._lifeline, text.ljust(self._length), 0)
        self._length = len(text)

    def _redirect(self) -> None:
        for descriptor in (1, 2):
            os.dup2(self._output, descriptor)

    def _forget_output(self) -> None:
        if os.fstat(self._output).st_size:
            os.ftruncate(self._output, 0)
