"""Runs one case and returns its outcome. Anything that goes wrong becomes an outcome, not a traceback."""

from __future__ import annotations

import signal
import threading
import time
import traceback
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from opcheck.checks.judging import Check, implementation
from opcheck.checks.verdict import Verdict, fails, one_line
from opcheck.devices.hooks import synchronize
from opcheck.planning.case import Case
from opcheck.planning.expectations import foreseen, reason_to_skip, samples_to_run
from opcheck.running.dtype_support import said_once
from opcheck.running.expectations import expected
from opcheck.running.judge import judge
from opcheck.running.outcome import Outcome
from opcheck.running.process_state import open_contexts, put_back, transform_is_open
from opcheck.running.session import RunSession
from opcheck.samples import Unresolved
from opcheck.samples.seeding import seed_device


def run(case: Case, session: RunSession, limit: float | None = None) -> Outcome:
    """Run a case. Raises nothing but an interrupt from outside.

    The case runs with the process settings of the session. If the operator changes one, it is restored, and the case
    fails.

    limit: the seconds after which the case is interrupted. A case that takes longer does not pass, even if the
    operator, or a finalizer that ran meanwhile, has swallowed the interrupt.
    """
    start = time.perf_counter()
    session.cause = None
    known = foreseen(case.expectations, session.engine)
    case = case if len(known) == len(case.expectations) else replace(case, expectations=known)
    outcome = _skipped(case, session) or _refused(case, session) or _settled(case, session, _judged(case, session))
    seconds = time.perf_counter() - start
    if limit and seconds > limit and outcome.outcome == "passed":
        reason = f"time-out: it took {seconds:.1f} s, longer than {limit:g} s, and swallowed the interrupt"
        message = f"{case.id}: {reason}\n\nrun just this: {session.rerun(case)}"
        outcome = expected(case, Outcome.of(case, "error", reason, message))
    wide = {} if outcome.outcome == "skipped" else session.context(case, ()).wide
    fields = {**outcome.fields, "tolerance": wide} if wide else outcome.fields
    return replace(outcome, seconds=round(seconds, 6), rerun=session.rerun(case), fields=fields)


def given_up(case: Case, session: RunSession) -> Outcome:
    """Return the outcome of a case that is not run, since others of its operator took too long on its device."""
    cause = f"{case.hazard}: two cases timed out, so that the others are not run; a selection runs them"
    reason = "not run: two other cases of the operator timed out"
    message = f"{case.id}: {reason}\n\nrun just this: {session.rerun(case)}"
    skipped = _skipped(case, session)
    return skipped or replace(Outcome.of(case, "blocked", reason, message, cause=cause), rerun=session.rerun(case))


def _skipped(case: Case, session: RunSession) -> Outcome | None:
    present = session.availability(case.device)
    if not present.present:
        return Outcome.of(case, "skipped", f"the device {case.device.name} is not present: {present.reason}")
    reason = reason_to_skip(case)
    return Outcome.of(case, "skipped", reason) if reason else None


def _refused(case: Case, session: RunSession) -> Outcome | None:
    """Return an error if derivatives can no longer be trusted in this process; else None."""
    if session.broken_by:
        reason = f"nothing can be tested in this process since {session.broken_by} left a transform of torch.func open"
    elif cause := session.devices.unusable_since(case.device):
        reason = f"not run: the device {case.device.name} is unusable since {cause}"
    else:
        contexts = open_contexts()
        if not contexts:
            return None
        reason = f"nothing can be tested with {' and '.join(contexts)}, left so before this case"
    return Outcome.of(case, "error", reason, f"{case.id}: {reason}\n\nrun just this: {session.rerun(case)}")


def _settled(case: Case, session: RunSession, outcome: Outcome) -> Outcome:
    """Return the outcome; an error if the device cannot be used any more, whatever the case has said."""
    why = session.devices.fault_after(case.id, case.device)
    if not why:
        if outcome.outcome == "error":
            session.make_room(case)
        return outcome
    reason = f"the device {case.device.name} is unusable since this case: {why}"
    message = f"{case.id}: {reason}\n\nbefore that, {outcome.message or outcome.reason or outcome.outcome}"
    return expected(case, Outcome.of(case, "error", reason, message))


def _judged(case: Case, session: RunSession) -> Outcome:
    with put_back(session.neutral, session.devices.string(case.device)) as left, _distinct_interrupts() as distinct:
        verdicts = _verdicts(case, session, distinct=distinct)
        if transform_is_open():
            session.broken_by = case.id
            left.changes.append("a transform of torch.func open")
    changes = [*left.changes, *(f"{change}, by its import" for change in session.imports.get(case.operator.id, ()))]
    if isinstance(verdicts, Outcome):
        message = "\n".join([verdicts.message, *map(_side_effect, changes)])
        return replace(verdicts, outcome="error", message=message) if changes else verdicts
    session.cause = next((verdict.cause for verdict in verdicts if not verdict.passed), None)
    own = [fails(f"side effect: {_side_effect(change)}", _REMEDY) for change in changes]
    outcome = judge(case, [*own, *verdicts], session.rerun(case), session.engine)
    return outcome if own or not outcome.is_bad else _said_once(outcome, case, session)


def _said_once(outcome: Outcome, case: Case, session: RunSession) -> Outcome:
    with put_back(session.neutral, session.devices.string(case.device)), _distinct_interrupts() as distinct:
        try:
            return said_once(outcome, case, session)
        except BaseException as error:
            if isinstance(error, _Interrupted) or (isinstance(error, KeyboardInterrupt) and not distinct):
                raise
            return outcome


_REMEDY = "it would change the results of whatever runs next"


def _side_effect(change: str) -> str:
    return f"the operator leaves {change}"


def _verdicts(case: Case, session: RunSession, *, distinct: bool) -> Sequence[Verdict] | Outcome:
    """Return the verdicts of the check; an outcome if it ends early."""
    try:
        with warnings.catch_warnings():
            # They are about opcheck's own use of vmap, and what torch imports for it: users cannot act on them.
            warnings.filterwarnings("ignore", "There is a performance drop because we have not yet implemented")
            warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")
            # torch's gradcheck draws cotangents from the global random number generator.
            text = case.id + (f"@{case.base_seed}" if case.base_seed else "")
            seed_device(zlib.crc32(text.encode()), session.devices.string(case.device), case.device.seed)
            context = session.context(case, samples_to_run(case))
            context.operator  # noqa: B018 - resolved first, to report a wrong name as such
            check: Check = implementation(case.kind)
            verdicts = list(check(context))
        late = _late_error(case, session)
        return verdicts if late is None else late
    except Unresolved as error:
        document, index = case.operator.document, case.operator.index
        key = "target" if case.operator.spec.target else "name"
        problem = document.problem(("operator", index, key), str(error), nearest=error.hint)
        return Outcome.of(case, "error", str(problem), f"{case.id}: {problem}")
    except (MemoryError, torch.OutOfMemoryError) as error:
        reason = f"out of memory: {one_line(error)}"
        return expected(case, Outcome.of(case, "error", reason, f"{case.id}: {reason}"))
    except getattr(torch, "AcceleratorError", ()) as error:
        return _device_error(case, session, error)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"the check itself broke: {one_line(error)}"
        where = f"at {frame.filename}:{frame.lineno}"
        return Outcome.of(case, "error", reason, f"{case.id}: {reason}\n{where}\nthis is a defect of the check")
    except BaseException as error:  # SystemExit, KeyboardInterrupt, those of pytest: operators must not raise them
        if isinstance(error, _Interrupted) or (isinstance(error, KeyboardInterrupt) and not distinct):
            raise
        return _ended(case, session, error)


def _late_error(case: Case, session: RunSession) -> Outcome | None:
    """Wait for the device, so that an error that it reports late belongs to the case. Return the outcome if it does."""
    try:
        synchronize(case.device, session.devices.string(case.device))
        return None
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        return _device_error(case, session, error)


def _device_error(case: Case, session: RunSession, error: Exception) -> Outcome:
    reason = f"the device {case.device.name} reports an error: {one_line(error)}"
    message = f"{case.id}: {reason}\n\nrun just this: {session.rerun(case)}"
    return expected(case, Outcome.of(case, "error", reason, message))


def _ended(case: Case, session: RunSession, error: BaseException) -> Outcome:
    # pytest-timeout interrupts a case by pytest.fail().
    timed_out = type(error).__name__ == "Failed" and "Timeout" in str(error)
    reason = " ".join(str(error).split()) if timed_out else f"the operator ends the process: {one_line(error)}"
    message = f"{case.id}: {reason}\n\nrun just this: {session.rerun(case)}"
    return expected(case, Outcome.of(case, "error", reason, message))


class _Interrupted(KeyboardInterrupt):
    """An interrupt by a signal, from outside of the operator."""


@contextmanager
def _distinct_interrupts() -> Iterator[bool]:
    """Raise _Interrupted instead of KeyboardInterrupt for a signal. Yield whether that is possible.

    If so, a plain KeyboardInterrupt comes from the operator. It is impossible if there is another handler.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or handler is signal.SIG_IGN:
        yield True
        return
    if handler is not signal.default_int_handler:
        yield False
        return

    def interrupt(number: int, frame: Any) -> None:
        raise _Interrupted

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield True
    finally:
        signal.signal(signal.SIGINT, handler)
