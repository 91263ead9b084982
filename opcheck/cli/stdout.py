"""Output and signals of commands: control characters are escaped, and an interrupted run still writes its reports."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from opcheck.text import printable


def open_closed_streams() -> None:
    """Put the null device in place of closed standard streams. Otherwise, other files would get their descriptors."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest free one, which is that of the stream
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w", encoding="utf-8"))


def say(*lines: str) -> None:
    """Print lines, and flush them. Control characters are escaped."""
    for line in lines:
        print(printable(line, most=100_000), flush=True)


def warn(line: str) -> None:
    """Print a warning or an error to stderr."""
    print(printable(f"opcheck: {line}", lines=True, most=100_000), file=sys.stderr)


class Output(io.TextIOWrapper):
    """A stream for standard output. If its reader is gone, as in `opcheck run | head`, it interrupts the run.

    If the disk is full, the run continues, so that its report files are written.
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
    """Make SIGTERM act like Ctrl-C: a command writes what it has, and ends."""

    def interrupt(*_: object) -> None:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell script
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.raise_signal(signal.SIGINT)

    before: Any = None
    with suppress(ValueError):  # only the main thread can set handlers
        before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
