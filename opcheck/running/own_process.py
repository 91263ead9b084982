"""Calls a function for each of several items in a process of its own: one that crashes or hangs costs one answer."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from opcheck.text import ending, one_line

Item = TypeVar("Item")
Result = TypeVar("Result")
PERIOD = 1.0
"""Seconds between two looks at how long processes have run."""


@dataclass(frozen=True)
class Ended:
    """Why there is no answer for an item."""

    why: str


def apart(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    processes: int,
    seconds: float | None = None,
    *,
    forks: bool = True,
    fresh: bool = False,
) -> Iterator[Result | Ended]:
    """Yield what a function returns for each item, in the order of the items.

    The processes are forked from this one, which has imported everything and computed nothing: torch's threads do not
    survive a fork. Only what the function returns is pickled. Where processes cannot be forked, this one does the work,
    or fresh ones do. An interrupt is for this process, which ends the others.

    Args:
        work: The function.
        items: What it is called with.
        processes: How many calls run at the same time.
        seconds: How long one may take. None: as long as it likes.
        forks: Whether to fork: not where a device is in use, which does not survive it.
        fresh: Whether the function can be pickled, too, so that fresh processes can be started instead of forks.
    """
    forks = forks and "fork" in multiprocessing.get_all_start_methods()
    if not (forks or fresh):
        yield from (_answer(work, item) for item in items)
        return
    start = "fork" if forks else "spawn"
    running: dict[Connection, _Running[Result]] = {}
    left, answers, number = list(enumerate(items))[::-1], dict[int, Result | Ended](), 0
    try:
        while number < len(items):
            while left and len(running) < processes:
                begun = _Running.begin(start, *left.pop(), work)
                running[begun.pipe] = begun
            ready = wait(list(running), PERIOD)
            for pipe, one in list(running.items()):
                if pipe in ready:
                    answers[one.number] = one.answer()
                elif seconds and time.monotonic() - one.since > seconds:
                    answers[one.number] = Ended(f"it takes longer than {seconds:g} s")
                else:
                    continue
                running.pop(pipe).end()
            while number in answers:
                yield answers.pop(number)
                number += 1
    finally:
        for one in running.values():
            one.end()


@dataclass(frozen=True)
class _Running(Generic[Result]):
    number: int
    process: Any
    pipe: Connection
    since: float

    @classmethod
    def begin(cls, start: str, number: int, item: Any, work: Callable[[Any], Result]) -> _Running[Result]:
        """Start a process that calls a function."""
        context: Any = multiprocessing.get_context(start)
        pipe, other = context.Pipe(duplex=False)
        process = context.Process(target=_call, args=(work, item, other), daemon=True)
        with _interrupts_held():
            process.start()
        other.close()
        return cls(number, process, pipe, time.monotonic())

    def answer(self) -> Result | Ended:
        """Return what the process has sent, or how it has ended."""
        try:
            answer: Result | Ended = self.pipe.recv()
            return answer
        except EOFError:
            self.process.join()
            return Ended(ending(self.process.exitcode))

    def end(self) -> None:
        """End the process, if it still runs."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold back an interrupt: Python drops what is raised in its hooks around a fork."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _call(work: Callable[[Any], Any], item: Any, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a handler of the process that waits is none of this one's
    os.dup2(2, 1)  # what is printed here, by C libraries as well, is no part of the output of the process that waits
    pipe.send(_answer(work, item))


def _answer(work: Callable[[Item], Result], item: Item) -> Result | Ended:
    try:
        return work(item)
    except Exception as error:
        return Ended(one_line(error))


def parted(names: Iterable[str], answers: Iterable[Result | Ended]) -> tuple[dict[str, Result], dict[str, str]]:
    """Return the answers by name, and why the others have none."""
    got, lost = dict[str, Result](), dict[str, str]()
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, Ended):
            lost[name] = answer.why
        else:
            got[name] = answer
    return got, lost
