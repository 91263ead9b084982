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
from pathlib import Path
from typing import Any

import psutil

from opcheck.checks.verdict import one_line
from opcheck.draft.draft import Draft
from opcheck.draft.guess import SampleData
from opcheck.draft.search import Deadline, Search, Wanted
from opcheck.draft.writing import written
from opcheck.planning.case import Case
from opcheck.planning.loading import load
from opcheck.planning.planner import plan
from opcheck.planning.selection import Selection
from opcheck.running.runner import run
from opcheck.running.session import RunSession
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
    """The folder in which processes write what they do."""
    changes: tuple[str, ...] = ()
    """What importing the target has changed in the process."""

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

    def doing(self) -> str:
        """Return what was going on, in words."""
        if self.case:
            return f"in the case {self.case}"
        return f"in the call {render(self.call)}" if self.call is not None else "before it was called"


def journal_of(name: str, shop: Workplace) -> Path:
    """Return the file in which a process writes what is known of an operator."""
    assert shop.journals is not None
    return shop.journals / f"{name.replace(':', '.')}.pickle"


def trace_of(name: str, shop: Workplace) -> Path:
    """Return the file in which Python writes where a process was when it took too long."""
    return journal_of(name, shop).with_suffix(".trace")


def looked_at(wanted: Wanted, shop: Workplace) -> dict[str, Any]:
    """Return samples that an operator takes and what they show, or why there is none."""
    shop.enter()
    shop.alone()
    return samples(Search(wanted, shop.settings.modules, Deadline(shop.budget)))


def samples(search: Search) -> dict[str, Any]:
    """Return samples that an operator takes and what they show, or why there is none."""
    try:
        return search.answer()
    except Exception as error:  # what an operator raises where it is called is among the answers
        return {"refusal": f"looking for its arguments failed, at {place_of(error)}: {one_line(error)}"}


def trial(wanted: Wanted, shop: Workplace) -> Trial:
    """Draft an operator in this process, which has nothing else to do."""
    if time.monotonic() >= shop.until:
        return Trial(wanted)
    shop.enter()
    shop.alone()
    return drafted(wanted, shop)


def drafted(wanted: Wanted, shop: Workplace) -> Trial:
    """Return what is known of an operator after a draft of it has been tried."""
    own = Trial(wanted, time.monotonic())
    _Trying(own, shop).all()
    return own


class _Trying:
    def __init__(self, trial: Trial, shop: Workplace) -> None:
        self.trial, self.shop = trial, shop
        if shop.journals is not None:
            self.trace = trace_of(trial.wanted.name, shop).open("w")

    def note(self) -> None:
        """Write what is known so far, for whoever finds this process gone. What takes too long now ends it."""
        if self.shop.journals is not None:
            journal = journal_of(self.trial.wanted.name, self.shop)
            part = journal.with_suffix(".part")
            part.write_bytes(pickle.dumps(self.trial))
            part.replace(journal)
            faulthandler.dump_traceback_later(self.shop.budget, exit=True, file=self.trace)

    def all(self) -> None:
        """Look for samples, then run the cases of each draft."""
        own = self.trial
        deadline = Deadline(self.shop.budget, self.shop.until)
        guessing = Deadline(GUESSING * self.shop.budget, self.shop.until)
        search = Search(own.wanted, self.shop.settings.modules, guessing, self.calling)
        answer = samples(search)
        own.call, own.ended, own.refusal = None, search.ended, answer.get("refusal", "")
        own.drafts = [] if own.refusal else Draft.all_of(own.wanted.name, answer)
        try:
            for draft in own.drafts:
                self.claims(draft, deadline)
        except Exception as error:  # those of operators are outcomes
            own.drafts = []
            own.refusal = f"opcheck itself failed, at {place_of(error)}: {one_line(error)}"

    def calling(self, call: SampleData) -> None:
        """Note the call that is about to be made."""
        self.trial.call = call
        self.note()

    def claims(self, draft: Draft, deadline: Deadline) -> None:
        """Run the cases of a draft, and take back what the operator refuses. Then the cases are others."""
        own, session = self.trial, RunSession.start(self.shop.settings, own_process=True)
        if self.shop.changes:
            session.imports[draft.id] = list(self.shop.changes)
        cases, records = planned(draft, session), dict[str, Record]()
        while left := [case for case in cases if case.id not in records]:
            if deadline.is_over:
                own.left += len(left)
                break
            own.case = left[0].id
            self.note()
            record = run(left[0], session).record()
            if draft.revise([record]):
                records = {name: one for name, one in records.items() if holds_on(one)}
                cases = planned(draft, session)
            else:
                records[own.case] = record
        own.records |= {case.id: records[case.id] for case in cases if case.id in records}
        own.case = ""


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
