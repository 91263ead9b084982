"""Drafts one operator, in a process of its own: looks for samples, runs its cases, takes back what it refuses."""

from __future__ import annotations

import faulthandler
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

import psutil

from opcheck.checks.verdict import one_line
from opcheck.draft.draft import Draft
from opcheck.draft.parameter import SampleData
from opcheck.draft.search import BUSY, EXAMPLES, Deadline, Search
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
    journals: Path | None = None
    """The folder in which processes write what they do, for whoever finds them gone; None: they do not."""
    changes: tuple[str, ...] = ()
    """What importing the target has changed in the process."""

    @classmethod
    def of(
        cls, settings: Settings, package: str, budget: float, until: float = float("inf"), journals: Path | None = None
    ) -> Workplace:
        """Return that of a project, in which drafts may name a package, too."""
        modules = tuple(dict.fromkeys((*settings.modules, package)))
        allowed = settings.model_copy(update={"modules": modules})
        return cls(allowed, (str(settings.root), os.getcwd()), budget, until, journals)

    def enter(self) -> None:
        """Let this process import what the drafts name."""
        sys.path += [folder for folder in self.folders if folder not in sys.path]

    def alone(self) -> None:
        """Enter, and keep this process from printing, and from taking all of the memory."""
        self.enter()
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

    name: str
    given: Sequence[Sequence[SampleData]] = ()
    """Samples that are given or recorded, of which one of each group is enough: instead of guesses."""
    module: SampleData | None = None
    """How a class of modules is constructed; None: by guesses."""
    skip: tuple[SampleData, ...] = ()
    """Calls that have ended an earlier process."""
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

    def recorded(self, *outcomes: str) -> list[Record]:
        """Return what has become of the cases with some outcomes."""
        return [record for record in self.records.values() if record["outcome"] in outcomes]

    def again(self) -> Trial:
        """Return what is to be done without the call that has ended the process."""
        assert self.call is not None
        return Trial(self.name, self.given, self.module, (*self.skip, self.call), ended=self.ended)

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

    def patience(self, workplace: Workplace) -> float:
        """Return the seconds that a step may take. Cases are opcheck's own, and the machine may be busy."""
        return workplace.budget * (BUSY if self.case else 1)

    def write(self, workplace: Workplace) -> None:
        """Write what is known, before the next step. If that takes too long, this process ends."""
        if workplace.journals is not None:
            file = self._file(workplace.journals)
            part = file.with_suffix(".part")
            part.write_bytes(pickle.dumps(self))
            part.replace(file)
            faulthandler.dump_traceback_later(self.patience(workplace), exit=True, file=_trace(file))

    def ended_by(self, why: str, workplace: Workplace) -> Trial:
        """Return what its process has written last, with how the process has ended."""
        assert workplace.journals is not None
        file = self._file(workplace.journals)
        own: Trial = pickle.loads(file.read_bytes()) if file.exists() else self
        own.since = own.since or time.monotonic()
        trace = file.with_suffix(".trace")
        own.hangs = trace.exists() and trace.read_text().startswith(TIMED_OUT)
        what = f"it takes longer than {own.patience(workplace):g} s" if own.hangs else why
        if own.is_called:
            own.ended.append(f"{what}, {own.doing()}")
        own.refusal = "" if own.drafts else f"{what}, {own.doing()}"
        return own

    def _file(self, folder: Path) -> Path:
        return folder / f"{self.name.replace(':', '.')}.pickle"


@cache
def _trace(file: Path) -> IO[str]:
    """Return the file beside a journal, open as long as this process, in which Python writes where it was."""
    return file.with_suffix(".trace").open("w")


def looked_at(own: Trial, workplace: Workplace) -> Trial:
    """Look for samples that an operator takes, in this process, which has nothing else to do."""
    workplace.alone()
    _search(own, workplace, Deadline(workplace.budget))
    return own


def trial(own: Trial, workplace: Workplace) -> Trial:
    """Draft an operator in this process, which has nothing else to do."""
    if time.monotonic() >= workplace.until:
        return own
    workplace.alone()
    import_what_is_late()  # here for one operator, since this process ends without clearing up
    return drafted(own, workplace)


def drafted(own: Trial, workplace: Workplace) -> Trial:
    """Return what is known of an operator after samples have been looked for, and the cases of its drafts have run."""
    own.since = time.monotonic()
    deadline, guessing = (Deadline(part * workplace.budget, workplace.until) for part in (1.0, GUESSING))
    _search(own, workplace, guessing)
    try:
        for draft in own.drafts:
            _take_back(own, draft, workplace, deadline)
    except Exception as error:  # those of operators are outcomes
        own.drafts, own.refusal = [], f"opcheck itself failed, at {place_of(error)}: {one_line(error)}"
    return own


def _search(own: Trial, workplace: Workplace, deadline: Deadline) -> None:
    """Look for samples that an operator takes, and draft what they show; or say why there is none."""

    def calling(call: SampleData) -> None:
        own.call = call
        own.write(workplace)

    modules = workplace.settings.modules
    search = Search(own.name, modules, deadline, own.given, own.module, own.skip, own.ended, calling)
    try:
        own.drafts = search.drafts()
        own.refusal = "" if own.drafts else search.refusal()
    except Exception as error:  # what an operator raises where it is called is among the answers
        own.refusal = f"looking for its arguments failed, at {place_of(error)}: {one_line(error)}"
    own.call = None


def _take_back(own: Trial, draft: Draft, workplace: Workplace, deadline: Deadline) -> None:
    """Run the cases of a draft, and take back what the operator refuses. Then the cases are others."""
    session = RunSession.start(workplace.settings, own_process=True)
    if workplace.changes:
        session.imports[draft.id] = list(workplace.changes)
    earlier, untested = own.records, own.left
    cases, records = planned(draft, session), dict[str, Record]()
    while left := [case for case in cases if case.id not in records]:
        own.case, own.left, own.records = left[0].id, untested + len(left), {**earlier, **records}
        if deadline.is_over:
            break
        own.write(workplace)
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
    workplace.alone()
    draft, name = failure
    session = RunSession.start(workplace.settings, own_process=True, reproduces=True)
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
        file.write_text(draft.toml(), encoding="utf-8")
        library = load([file], settings)
    device = settings.profiles()["cpu"]
    session.prepare(library, [device])
    return plan(library, [device], Selection(derive=settings.derive), settings.seed)


def place_of(error: Exception) -> str:
    """Return where an exception was raised."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return f"{frame.f_code.co_filename}:{line}"
