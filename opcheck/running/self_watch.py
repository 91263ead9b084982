"""A worker that no watchdog looks after: it ends itself if a case takes too much memory."""

from __future__ import annotations

import gc
import os
import threading

import psutil

from opcheck.running.watchdog import Limits
from opcheck.running.worker import OwnProcess

PERIOD = 0.25
"""Seconds between two looks at the memory of the process."""


class SelfWatched(OwnProcess):
    """This process, as a task of Ray has it. It tells nobody why it ends: its cases are run again, under a watchdog."""

    def __init__(self, limits: Limits) -> None:
        """Set up the process, and start to watch its memory."""
        super().__init__(limits.seconds, open(os.devnull, "w"))  # noqa: SIM115 - open until the process ends
        if limits.memory is not None:
            threading.Thread(target=self._watch_memory, args=(limits.memory,), daemon=True).start()

    def settle(self) -> None:
        """Get ready for cases. What is to stay is set aside between sessions, when nothing else is there."""
        gc.enable()

    def leave(self) -> None:
        """Leave the garbage to the next collection: the process goes on."""

    def _watch_memory(self, most: int) -> None:
        own = psutil.Process()
        pause = threading.Event()
        while not pause.wait(PERIOD):
            if own.memory_info().rss > most * 2**20:
                os._exit(1)
