"""A process that exists to run cases, watched from outside: what it may do to itself, which no other process may."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opcheck.run.lifeline import Lifeline


class Worker:
    """This process, as a worker of `opcheck run`."""

    def __init__(self, lifeline: Path) -> None:
        """Begin. Interrupts are left to the controlling process, which ends the workers."""
        self.lifeline = Lifeline(lifeline)
        # What operators print has nowhere to be shown, but may say why the process ends.
        self._output = os.open(self.lifeline.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor in (1, 2):
            os.dup2(self._output, descriptor)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.disable()  # what is made until the first case stays; to look for garbage in it takes a quarter of the time

    def imports(self, what: str) -> None:
        """Say that what specs name is being imported: an import may end the process, too."""
        self.lifeline.catch_crashes()  # pytest has set up its own way of doing so by now
        self._forget_output()
        self.lifeline.say("starting", what)

    def settle(self) -> None:
        """Get ready for the first case. torch and the items stay until the end: no garbage is looked for among them."""
        gc.freeze()
        gc.enable()
        self.lifeline.say("idle")

    @contextmanager
    def busy(self, case: str, spoilt_by: str = "") -> Iterator[None]:
        """Say that a case runs. Where another one has spoilt this process, end it: a fresh one takes the case over."""
        if spoilt_by:
            self.lifeline.say("spoilt", spoilt_by)
            os._exit(1)
        self._forget_output()
        self.lifeline.say("case", case)
        try:
            yield
        finally:
            self.lifeline.say("idle", case)

    def _forget_output(self) -> None:
        if os.fstat(self._output).st_size:
            os.ftruncate(self._output, 0)

    def leave(self) -> None:
        """End soon: what goes with the process is no garbage to look for."""
        gc.freeze()
