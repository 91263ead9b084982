"""Calls a function for each of several items in a process of its own: a crash or hang loses only one result."""

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
"""Seconds between two checks of the time limits."""


@dataclass(frozen=True)
class Ended:
    """The reason why an item has no result."""

    why: str
    is_late: bool = False
    """Whether the process was killed because it exceeded its time limit."""
    news: dict[str, Any] = field(default_factory=dict)
    """The data that the process sent by `tell` before it ended."""


_waiting: Connection | None = None
"""The pipe to the parent process; None if `apart` has not started this process."""


def tell(seconds: float | None = None, **news: Any) -> None:
    """Send the parent process data to keep in case this process ends without a result. Does nothing without a parent.

    seconds: the time limit of the step that begins now. None: the current step and its limit go on.
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
    """Yield the result of a function for each item, in the order of the items; `Ended` if there is none.

    The processes are forked from this one, which must have imported everything and computed nothing: torch's threads do
    not survive a fork. Only the results are pickled. Without forks, fresh processes call the function, or else this
    process does, without time limits. Only this process handles interrupts: it kills the others.

    Args:
        work: The function.
        items: The arguments of the calls.
        processes: The number of calls to run in parallel.
        seconds: The time limit of a call or, if the function calls `tell`, of its first step. None: no limit.
        forks: Whether to fork. Must be false if a device is in use, since devices do not survive a fork.
        fresh: Whether the function and the items can be pickled, so that fresh processes can replace forks.
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
    """The start time of the current step, by `time.monotonic()`."""
    seconds: float | None
    """The time limit of the step; None: no limit."""
    news: dict[str, Any] = field(default_factory=dict)
    answers: list[Result | Ended] = field(default_factory=list)
    """The result, once there is one; at most one element."""

    @classmethod
    def begin(
        cls, start: str, number: int, item: Any, work: Callable[[Any], Result], seconds: float | None
    ) -> _Running[Result]:
        """Start a process that calls a function with an item."""
        context: Any = multiprocessing.get_context(start)
        pipe, other = context.Pipe(duplex=False)
        process = context.Process(target=_call, args=(work, item, other), daemon=True)
        with _interrupts_held():
            process.start()
        other.close()
        return cls(number, process, pipe, time.monotonic(), seconds)

    def listen(self) -> None:
        """Receive the next message of the process: news or the result. If the process has ended, store `Ended`."""
        try:
            seconds, news, *self.answers = self.pipe.recv()
        except (EOFError, OSError):  # the process has ended, perhaps while sending
            self.process.join()
            self.answers = [Ended(ending(self.process.exitcode))]
            return
        self.news |= news
        if seconds is not None:
            self.since, self.seconds = time.monotonic(), seconds

    def end(self) -> None:
        """Kill the process, if it still runs, and close its pipe."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Defer interrupts: Python discards exceptions that are raised in its fork hooks."""
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
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # do not run a handler of the parent process
    os.dup2(2, 1)  # send stdout to stderr, also that of C libraries: stdout belongs to the output of the parent process
    global _waiting
    _waiting = pipe
    pipe.send((None, {}, _answer(work, item)))


def _answer(work: Callable[[Item], Result], item: Item) -> Result | Ended:
    try:
        return work(item)
    except Exception as error:
        return Ended(one_line(error))


def split_results(names: Iterable[str], answers: Iterable[Result | Ended]) -> tuple[dict[str, Result], dict[str, str]]:
    """Return the results, and the reasons for missing results, each by name."""
    got, lost = dict[str, Result](), dict[str, str]()
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, Ended):
            lost[name] = answer.why
        else:
            got[name] = answer
    return got, lost
