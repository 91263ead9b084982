"""Drafts one operator in a separate process: finds samples, runs the cases, takes back the claims that it refuses."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from opcheck.draft.draft import Draft
from opcheck.draft.refusal import has_interpreter
from opcheck.draft.search import Search
from opcheck.draft.workplace import BUSY, Deadline, Record, Trial, Workplace
from opcheck.planning.case import Case
from opcheck.planning.loading import load
from opcheck.planning.planner import plan
from opcheck.planning.selection import Selection
from opcheck.running.process_state import preload_lazy_imports
from opcheck.running.runner import run
from opcheck.running.session import RunSession
from opcheck.spec.device_profile import DeviceProfile
from opcheck.text import one_line

NO_BFLOAT16 = "Triton's interpreter computes with its bits as integers"
"""Why a draft that is made in Triton's interpreter leaves out bfloat16."""

FIRST = ("dtypes", "device_consistency", "vmap", "forward_ad", "batched_grad")
"""The checks to run first: they find out which dtypes are supported, whether the operator runs on the CPU, and which
rules it lacks of those that operators lack most often."""

GUESS_SECONDS = 0.6
"""The fraction of the time for an operator that the search for samples may take."""


def trial(own: Trial, workplace: Workplace) -> Trial:
    """Draft an operator in a process that does nothing else. Return the trial unchanged if the time is over."""
    if time.monotonic() >= workplace.until:
        return own
    workplace.alone()
    if workplace.runs_cases:
        # For a single operator, the parent skips these imports, since cleaning them up at exit takes time. This process
        # exits without cleanup.
        preload_lazy_imports()
    return drafted(own, workplace)


def drafted(own: Trial, workplace: Workplace) -> Trial:
    """Search for samples of an operator, run the cases of its drafts, and return the trial."""
    own.note(begun=True)
    deadline = Deadline(workplace.budget, workplace.until)
    guessing = Deadline(GUESS_SECONDS * workplace.budget, workplace.until) if workplace.runs_cases else deadline
    try:
        search = Search(own, workplace, guessing)
        draft = search.draft()
        own.note(
            BUSY * workplace.budget,  # opcheck itself takes the next step, on a machine that may be busy
            step="while its cases were planned", call=None, draft=draft, refusal="" if draft else search.refusal(),
        )  # fmt: skip
        if draft is not None and workplace.runs_cases:
            _take_back(own, draft, workplace, deadline)
    except Exception as error:  # exceptions of operators are results
        what = "opcheck itself" if own.draft else "looking for its arguments"
        *_, (frame, line) = traceback.walk_tb(error.__traceback__)
        own.call, own.draft = None, None
        own.refusal = f"{what} failed, at {frame.f_code.co_filename}:{line}: {one_line(error)}"
    return own


def _take_back(own: Trial, draft: Draft, workplace: Workplace, deadline: Deadline) -> None:
    """Run the cases of a draft, and take back what the operator refuses.

    When a claim changes, the cases are planned anew, and only records that still hold are kept.
    """
    session = RunSession(workplace.settings, own_process=True, note=lambda line: own.note(step=f"{step}, at {line}"))
    if has_interpreter():
        draft.refused["forward"].setdefault("bfloat16", NO_BFLOAT16)
    if workplace.changes:
        session.imports[draft.name] = list(workplace.changes)
    cases, records = planned(draft, session, workplace.device), dict[str, Record]()
    while left := [case for case in cases if case.id not in records]:
        step = f"in the case {left[0].id}"
        own.note(BUSY * workplace.budget, step=step, left=len(left), records=records, draft=draft)
        if deadline.is_over:
            break
        record = run(left[0], session).record()
        if draft.revise(record):  # what has passed would pass with fewer claims, too
            passed = {name: one for name, one in records.items() if one["outcome"] == "passed"}
            records = {name: one for name, one in passed.items() if one["check"] != "unsupported"}
            cases = planned(draft, session, workplace.device)
        else:
            records[left[0].id] = record
    own.left, own.records = len(left), {case.id: records[case.id] for case in cases if case.id in records}


def reproduced(failure: tuple[Draft, str], workplace: Workplace) -> str:
    """Return a script in plain torch that reproduces a failure; empty if there is none.

    failure: a draft, and the id of its case that fails.
    """
    workplace.alone()
    draft, name = failure
    session = RunSession(workplace.settings, own_process=True, reproduces=True)
    (case,) = (case for case in planned(draft, session, workplace.device) if case.id == name)
    return str(run(case, session).fields.get("reproduction", ""))


def planned(draft: Draft, session: RunSession, device: DeviceProfile) -> Sequence[Case]:
    """Return the cases of a draft on a device, those of the checks in `FIRST` first. Raises SpecError."""
    settings = session.settings
    with tempfile.TemporaryDirectory(prefix="opcheck-") as folder:
        file = Path(folder, "draft.toml")
        file.write_text(draft.toml(), encoding="utf-8")
        library = load([file], settings)
    session.prepare(library, [device])
    wanted = Selection(derive=settings.derive, engine=settings.engine)
    cases = plan(library, [device], wanted, settings.seed)
    return sorted(cases, key=lambda case: FIRST.index(case.check) if case.check in FIRST else len(FIRST))
