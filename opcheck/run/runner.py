"""Runs one case, from its samples to its outcome. Whatever goes wrong becomes an outcome, never a traceback."""

from __future__ import annotations

import time
import traceback
import warnings
import zlib
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch

from opcheck.checks.context import Check, Context
from opcheck.checks.verdict import told
from opcheck.plan.case import Case
from opcheck.run.judge import judge, nothing_to_run, samples_to_run
from opcheck.run.outcome import Outcome, rerun_command
from opcheck.run.session import RunSession
from opcheck.samples import Unresolved
from opcheck.samples.kept import Kept
from opcheck.samples.seeding import seed_device

KEPT = Kept()


def run(case: Case, session: RunSession) -> Outcome:
    """Return the outcome of a case. Exceptions that are no errors (an interrupt, a time-out of pytest) pass through."""
    start = time.perf_counter()
    foreseen = tuple(e for e in case.expectations if e.when.engine in (None, session.engine.name))
    case = case if len(foreseen) == len(case.expectations) else replace(case, expectations=foreseen)
    outcome = _skipped(case, session) or _guarded(case, session)
    return replace(outcome, seconds=round(time.perf_counter() - start, 6))


def _skipped(case: Case, session: RunSession) -> Outcome | None:
    present = session.availability(case.device)
    if not present.present:
        return Outcome.of(case, "skipped", f"the device {case.device.name} is not present: {present.reason}")
    for expect in case.expectations:
        if expect.outcome == "skip" and expect.when.sample is None:
            return Outcome.of(case, "skipped", expect.reason)
    reason = "" if case.check == "errors" else nothing_to_run(case)
    return Outcome.of(case, "skipped", reason) if reason else None


def _guarded(case: Case, session: RunSession) -> Outcome:
    state = torch.random.get_rng_state()
    # torch's gradcheck draws cotangents from the global generator.
    seed_device(zlib.crc32(case.id.encode()), case.device.device_string)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of operators under test, often one for each of thousands of calls
            return _run(case, session)
    except Unresolved as error:
        document, index = case.operator.document, case.operator.index
        key = "target" if case.operator.spec.target else "name"
        problem = document.problem(("operator", index, key), str(error), nearest=error.hint)
        return Outcome.of(case, "error", str(problem), f"{case.id}: {problem}")
    except (MemoryError, torch.OutOfMemoryError) as error:
        return Outcome.of(case, "error", f"out of memory: {told(error)}", f"{case.id}: out of memory: {told(error)}")
    except SystemExit as error:
        reason = f"the operator ends the process: {told(error)}"
        message = f"{case.id}: {reason}\n\nrun just this: {_rerun(case, session)}"
        return Outcome.of(case, "error", reason, message)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        reason = f"the check itself broke: {told(error)}"
        return Outcome.of(case, "error", reason, f"{case.id}: {reason}\nat {where}\nthis is a defect of the check")
    finally:
        torch.random.set_rng_state(state)


def _run(case: Case, session: RunSession) -> Outcome:
    context = Context(
        case, session.engine, session.settings, samples_to_run(case), case.device.device_string, session.overrides, KEPT
    )
    context.operator  # noqa: B018 - resolved first, so that a wrong name is reported as that
    verdicts = list(implementation(case.kind.implementation)(context))
    return judge(case, verdicts, _rerun(case, session))


def implementation(path: str) -> Check:
    """Return the check that a plan names as `package.module:function`."""
    module, _, name = path.partition(":")
    found: Any = getattr(import_module(module), name)
    check: Check = found
    return check


def _rerun(case: Case, session: RunSession) -> str:
    """Return the command that runs a case alone."""
    engine = "" if session.engine.name == session.settings.engine else session.engine.name
    return rerun_command(case.operator.document.file, case.id, engine)
