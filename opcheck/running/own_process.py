"""Calls a function for each of several items in a process of its own: one that crashes or hangs costs one answer."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
    is_late: bool = False
    """Whether it has been ended for taking too long."""
    news: dict[str, Any] = field(default_factory=dict)
    """What it has told before."""


_waiting: Connection | None = None
"""The pipe to the process that waits for this one."""


def tell(seconds: float | None = None, **news: Any) -> None:
    """Tell the process that waits for this one, if any does, what it should know if this one ends without an answer.

    seconds: how long the next step may take. None: as said before.
    """
    if _waiting is not None:
        _waiting.send((seconds, news))


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
        seconds: How long one may take, or its first step, if it calls `tell`. None: as long as it likes.
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
                begun = _Running.begin(start, *left.pop(), work, seconds)
                running[begun.pipe] = begun
            ready = wait(list(running), PERIOD)
            for pipe, one in list(running.items()):
                if pipe in ready:
                    one.listen()
                elif one.seconds and time.monotonic() - one.since > one.seconds:
                    one.answers.append(Ended(f"it takes longer than {one.seconds:g} s", is_late=True))
                if one.answers:
                    (answer,) = one.answers
                    answers[one.number] = replace(answer, news=one.news) if isinstance(answer, Ended) else answer
                    running.pop(pipe).end()
            while number in answers:
                yield answers.pop(number)
                number += 1
    finally:
        for one in running.values():
            one.end()


@dataclass
class _Running(Generic[Result]):
    number: int
    process: Any
    pipe: Connection
    since: float
    """When its present step has begun."""
    seconds: float | None
    """How long that may take."""
    news: dict[str, Any] = field(default_factory=dict)
    answers: list[Result | Ended] = field(default_factory=list)
    """Its answer, once there is one."""

    @classmethod
    def begin(
        cls, start: str, number: int, item: Any, work: Callable[[Any], Result], seconds: float | None
    ) -> _Running[Result]:
        """Start a process that calls a function."""
        context: Any = multiprocessing.get_context(start)
        pipe, other = context.Pipe(duplex=False)
        process = context.Process(target=_call, args=(work, item, other), daemon=True)
        with _interrupts_held():
            process.start()
        other.close()
        return cls(number, process, pipe, time.monotonic(), seconds)

    def listen(self) -> None:
        """Take the next thing that the process has sent: news, or its answer. Or it has ended."""
        try:
            seconds, news, *self.answers = self.pipe.recv()
        except (EOFError, OSError):  # at the end, or in the middle of what it was sending
            self.process.join()
            self.answers = [Ended(ending(self.process.exitcode))]
            return
        self.news |= news
        if seconds is not None:
            self.since, self.seconds = time.monotonic(), seconds

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
    global _waiting
    _waiting = pipe
    pipe.send((None, {}, _answer(work, item)))


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
