"""Drafts one operator, in a process of its own: looks for samples, runs its cases, takes back what it refuses."""

from __future__ import annotations

import faulthandler
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import psutil

from opcheck.checks.verdict import one_line
from opcheck.draft.draft import Draft
from opcheck.draft.guess import SampleData
from opcheck.draft.search import BUSY, EXAMPLES, Deadline, Search, Wanted
from opcheck.draft.writing import written
from opcheck.planning.case import Case
from opcheck.planning.loading import load
from opcheck.planning.planner import plan
from opcheck.planning.selection import Selection
from opcheck.running.process_state import import_what_is_late
from opcheck.running.runner import run
from opcheck.running.session import RunSession
from opcheck.running.watchdog import TIMED_OUT
from opcheck.settings import Settings
from opcheck.spec.render import render

Record = dict[str, Any]

MEMORY = 4096
"""The MiB that trying an operator may take."""

GUESSING = 0.6
"""The part of the time for an operator that guesses may take."""


@dataclass(frozen=True)
class Workplace:
    """What the processes that draft operators have in common."""

    settings: Settings
    folders: tuple[str, ...]
    """The folders to import from, besides those of the environment."""
    budget: float
    """The seconds that an operator may take."""
    until: float = float("inf")
    """When the whole draft is to end, by `time.monotonic()`."""
    journals: Path = Path()
    """The folder in which processes write what they do."""
    changes: tuple[str, ...] = ()
    """What importing the target has changed in the process."""

    @classmethod
    def of(
        cls, settings: Settings, package: str, budget: float, until: float = float("inf"), journals: Path = Path()
    ) -> Workplace:
        """Return that of a project, in which drafts may name a package, too."""
        modules = tuple(dict.fromkeys((*settings.modules, package)))
        allowed = settings.model_copy(update={"modules": modules})
        return cls(allowed, (str(settings.root), os.getcwd()), budget, until, journals)

    def enter(self) -> None:
        """Let this process import what the drafts name."""
        sys.path += [folder for folder in self.folders if folder not in sys.path]

    def alone(self) -> None:
        """Keep this process from printing, and from taking all of the memory."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        with suppress(ImportError, OSError, ValueError):  # where there are no such limits
            import resource

            own = psutil.Process().memory_info().vms + MEMORY * 2**20
            _, most = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (own if most < 0 else min(own, most), most))


@dataclass
class Trial:
    """What is known of an operator: all that there is to know, or as much as there was when its process ended."""

    wanted: Wanted
    since: float = 0.0
    """When it began, by `time.monotonic()`. 0: there was no time for it."""
    hangs: bool = False
    """Whether its process has been ended since then, for taking too long."""
    call: SampleData | None = None
    """The call that was about to be made; None: all samples have been looked for."""
    case: str = ""
    """The case that was about to run."""
    refusal: str = ""
    """Why there is no draft."""
    drafts: list[Draft] = field(default_factory=list)
    records: dict[str, Record] = field(default_factory=dict)
    """What has become of the cases, by id."""
    left: int = 0
    """The number of cases for which there was no time."""
    ended: list[str] = field(default_factory=list)
    """What has ended its process, or would have."""

    @property
    def is_slow(self) -> bool:
        """Whether its process has been ended for a case that took too long. It called the operator many times."""
        return self.hangs and bool(self.case)

    @property
    def is_called(self) -> bool:
        """Whether it was the operator itself that ran, and not the examples in its documentation."""
        return self.call is None or EXAMPLES not in self.call

    def doing(self) -> str:
        """Return what was going on, in words."""
        if self.case:
            return f"in the case {self.case}"
        if not self.is_called:
            return "in the examples in its documentation"
        return f"in the call {render(self.call)}" if self.call is not None else "before it was called"


class Journal:
    """What a process writes about an operator, for whoever finds it gone."""

    def __init__(self, workplace: Workplace, name: str) -> None:
        self.workplace, self.file = workplace, workplace.journals / f"{name.replace(':', '.')}.pickle"
        self.trace = self.file.with_suffix(".trace")

    @cached_property
    def stream(self) -> IO[str]:
        """The file, open as long as this process, in which Python writes where it was."""
        return self.trace.open("w")

    def write(self, trial: Trial) -> None:
        """Write what is known. What takes too long from now on ends this process."""
        part = self.file.with_suffix(".part")
        part.write_bytes(pickle.dumps(trial))
        part.replace(self.file)
        faulthandler.dump_traceback_later(self.patience(trial), exit=True, file=self.stream)

    def patience(self, trial: Trial) -> float:
        """Return the seconds that a step may take. Cases are opcheck's own, and the machine may be busy."""
        return self.workplace.budget * (BUSY if trial.case else 1)

    def read(self, wanted: Wanted) -> Trial:
        """Return what was known last."""
        own: Trial = pickle.loads(self.file.read_bytes()) if self.file.exists() else Trial(wanted, time.monotonic())
        own.hangs = self.trace.exists() and self.trace.read_text().startswith(TIMED_OUT)
        return own


def looked_at(wanted: Wanted, workplace: Workplace) -> dict[str, Any]:
    """Return samples that an operator takes and what they show, or why there is none."""
    workplace.enter()
    workplace.alone()
    return samples(Search(wanted, workplace.settings.modules, Deadline(workplace.budget)))


def samples(search: Search) -> dict[str, Any]:
    """Return samples that an operator takes and what they show, or why there is none."""
    try:
        return search.answer()
    except Exception as error:  # what an operator raises where it is called is among the answers
        return {"refusal": f"looking for its arguments failed, at {place_of(error)}: {one_line(error)}"}


def trial(wanted: Wanted, workplace: Workplace) -> Trial:
    """Draft an operator in this process, which has nothing else to do."""
    if time.monotonic() >= workplace.until:
        return Trial(wanted)
    workplace.enter()
    workplace.alone()
    import_what_is_late()  # here for one operator, since this process ends without clearing up
    return drafted(wanted, workplace, Journal(workplace, wanted.name).write)


def drafted(wanted: Wanted, workplace: Workplace, note: Callable[[Trial], None] = lambda trial: None) -> Trial:
    """Return what is known of an operator after samples have been looked for, and the cases of its drafts have run.

    note: is called before each step with what is known.
    """
    own = Trial(wanted, time.monotonic())

    def calling(call: SampleData) -> None:
        own.call = call
        note(own)

    deadline, guessing = (Deadline(part * workplace.budget, workplace.until) for part in (1.0, GUESSING))
    search = Search(wanted, workplace.settings.modules, guessing, calling)
    answer = samples(search)
    own.call, own.ended, own.refusal = None, search.ended, answer.get("refusal", "")
    own.drafts = [] if own.refusal else Draft.all_of(wanted.name, answer)
    try:
        for draft in own.drafts:
            _take_back(own, draft, workplace, deadline, note)
    except Exception as error:  # those of operators are outcomes
        own.drafts, own.refusal = [], f"opcheck itself failed, at {place_of(error)}: {one_line(error)}"
    return own


def _take_back(
    own: Trial, draft: Draft, workplace: Workplace, deadline: Deadline, note: Callable[[Trial], None]
) -> None:
    """Run the cases of a draft, and take back what the operator refuses. Then the cases are others."""
    session = RunSession(workplace.settings, own_process=True)
    if workplace.changes:
        session.imports[draft.id] = list(workplace.changes)
    earlier, untested = own.records, own.left
    cases, records = planned(draft, session), dict[str, Record]()
    while left := [case for case in cases if case.id not in records]:
        own.case, own.left, own.records = left[0].id, untested + len(left), {**earlier, **records}
        if deadline.is_over:
            break
        note(own)
        record = run(left[0], session).record()
        if draft.revise([record]):
            records = {name: one for name, one in records.items() if holds_on(one)}
            cases = planned(draft, session)
        else:
            records[own.case] = record
    else:
        own.left = untested
    own.records = earlier | {case.id: records[case.id] for case in cases if case.id in records}
    own.case = ""


def reproduced(failure: tuple[Draft, str], workplace: Workplace) -> str:
    """Return a case of a draft that fails as a script in plain torch, or an empty string if there is none."""
    workplace.enter()
    workplace.alone()
    draft, name = failure
    session = RunSession(workplace.settings, own_process=True, reproduces=True)
    (case,) = (case for case in planned(draft, session) if case.id == name)
    return str(run(case, session).fields.get("reproduction", ""))


def holds_on(record: Record) -> bool:
    """Tell whether a case that has passed would pass with fewer claims, too."""
    return bool(record["outcome"] == "passed" and record["check"] != "unsupported")


def planned(draft: Draft, session: RunSession) -> Sequence[Case]:
    """Return the cases of a draft on the CPU. Raises SpecError."""
    settings = session.settings
    with tempfile.TemporaryDirectory(prefix="opcheck-") as folder:
        file = Path(folder, "draft.toml")
        file.write_text(written([draft]), encoding="utf-8")
        library = load([file], settings)
    device = settings.profiles()["cpu"]
    session.prepare(library, [device])
    return plan(library, [device], Selection(derive=settings.derive), settings.seed)


def place_of(error: Exception) -> str:
    """Return where an exception was raised."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return f"{frame.f_code.co_filename}:{line}"
