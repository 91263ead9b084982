"""The output and the signals of commands: text is safe to show, and a run always ends with its reports written."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from opcheck.text import printable


def say(*lines: str) -> None:
    """Print lines at once, so that a terminal shows them literally."""
    for line in lines:
        print(printable(line, most=100_000), flush=True)


def warn(line: str) -> None:
    """Print a line beside the output."""
    print(printable(f"opcheck: {line}", lines=True, most=100_000), file=sys.stderr)


class Output(io.TextIOWrapper):
    """Standard output that ends the run when its reader is gone, as in `opcheck run | head`.

    If the disk is full, the run continues, for the sake of its other reports.
    """

    is_cut = False

    def write(self, text: str) -> int:
        """Write text."""
        with self._surviving():
            super().write(text)
        return len(text)

    def flush(self) -> None:
        """Write the buffer."""
        with self._surviving():
            super().flush()

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError):
                raise KeyboardInterrupt from None
            self.is_cut = True
            warn(f"the output is incomplete: {error.strerror}")


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """Make SIGTERM act like Ctrl-C: the run ends, and its reports are written."""
    before: Any = None
    with suppress(ValueError):  # only the main thread can set handlers
        before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
