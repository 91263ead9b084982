"""Runs one case and returns its outcome. Errors of any kind become outcomes, not tracebacks."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from opcheck.checks.per_sample import Check, implementation
from opcheck.checks.subject import Context
from opcheck.checks.verdict import Verdict, fails
from opcheck.devices.presence import not_present
from opcheck.planning.case import Case
from opcheck.running.dtype_support import with_common_cause
from opcheck.running.judge import expected, judge, unexpected
from opcheck.running.outcome import Outcome
from opcheck.running.process_state import State, applied, open_contexts, transform_is_open
from opcheck.running.reproduction import reproduced
from opcheck.running.session import RunSession
from opcheck.samples.cache import Cache
from opcheck.samples.resolve import Unresolved
from opcheck.spec.problems import SpecError
from opcheck.text import class_of, one_line


def run(case: Case, session: RunSession, limit: float | None = None) -> Outcome:
    """Run a case and return its outcome. Raises only KeyboardInterrupt, for an interrupt from outside.

    The case runs with the process settings of the session. If the operator changes a setting, the setting is restored,
    and the case fails.

    limit: the seconds after which the caller interrupts the case. A case that takes longer does not pass, even if the
    operator, or a finalizer that ran meanwhile, has swallowed the interrupt.
    """
    start = time.perf_counter()
    session.cause = None
    wide = dict[str, float]()
    outcome = _skipped(case, session) or _refused(case, session)
    if outcome is None:
        context, verdicts = session.context(case), list[Verdict]()
        wide = context.wide
        with _contained(context, session.start) as contained, _seeded(context):
            context.operator  # noqa: B018 - resolved first, so that an unknown name is reported as such
            if mistakes := context.unknown_arguments:
                raise SpecError(case.operator.problem(*mistake) for mistake in mistakes)
            check: Check = implementation(case.kind)
            verdicts = [_as_verdict(one) for one in check(context)]
        outcome = _settled(case, session, _judged(context, session, contained, verdicts))
    seconds = time.perf_counter() - start
    if limit and seconds > limit and outcome.outcome in ("passed", "xfailed"):
        outcome = _error(
            case, f"time-out: it took {seconds:.1f} s, longer than {limit:g} s, and swallowed the interrupt"
        )
    fields = {"tolerance": wide} if wide else {}
    return outcome.ended(round(seconds, 6), session.rerun(case), **fields)


def _as_verdict(one: object) -> Verdict:
    if not isinstance(one, Verdict):
        raise TypeError(f"it yielded {class_of(one)}, expected a Verdict")
    return one


def abandoned(case: Case, session: RunSession) -> Outcome:
    """Return the outcome of a case that is not run because other cases of its operator timed out on its device."""
    cause = f"{case.hazard}: two cases timed out, so the others are not run; to run them, select them"
    why = "not run: two other cases of the operator timed out"
    outcome = _skipped(case, session) or Outcome.of(case, "blocked", why, cause=cause)
    return outcome.ended(0.0, session.rerun(case))


def _skipped(case: Case, session: RunSession) -> Outcome | None:
    present = session.device(case.device).availability
    if not present.present:
        return Outcome.of(case, "skipped", not_present(case.device.name, present.reason))
    reason = case.reason_to_skip
    return Outcome.of(case, "skipped", reason) if reason else None


def _refused(case: Case, session: RunSession) -> Outcome | None:
    """Return an error if this process can no longer test the case, because of what earlier cases did; else None."""
    if session.broken_by:
        reason = f"nothing can be tested in this process since {session.broken_by} left a transform of torch.func open"
    elif session.unusable and (cause := session.unusable.get(session.device(case.device).kind)):
        reason = f"not run: the device {case.device.name} is unusable since {cause}"
    elif contexts := open_contexts():
        reason = (
            f"not run: earlier code in this process left {' and '.join(contexts)}; close such contexts before running "
            "opcheck"
        )
    else:
        return None
    return Outcome.of(case, "error", reason)


def _settled(case: Case, session: RunSession, outcome: Outcome) -> Outcome:
    """Return the outcome of a case, or an error if the device no longer works after the case.

    After an error, free what torch and the session cache, since the device may be out of memory.
    """
    device = session.device(case.device)
    why = device.fault() if device.is_probed else ""
    if why:
        session.unusable.setdefault(device.kind, case.id)
        reason = f"the device {case.device.name} is unusable since this case: {why}"
        message = f"{case.id}: {reason}\n\nbefore that, {outcome.message or outcome.reason or outcome.outcome}"
        return expected(case, Outcome.of(case, "error", reason, message))
    if outcome.outcome == "error":
        session.cache = Cache()
        device.free_caches()
    return outcome


def _judged(context: Context, session: RunSession, contained: Contained, verdicts: list[Verdict]) -> Outcome:
    """Return the outcome from the verdicts, the side effects of the operator, and the exception that ended the case."""
    case = context.case
    effects = [f"the operator leaves {change}" for change in contained.left]
    if transform_is_open():
        session.broken_by = case.id
        effects.insert(0, "the operator leaves a transform of torch.func open")
    imports = session.imports.get(case.operator.id, ())
    effects += [f"the operator leaves {change}, by its import" for change in imports]
    if contained.error is not None:
        ended = _ended(case, contained.error)
        # If the device reported an error late, the check may have found errors before that.
        effects += [f"{one.title}\n{one.detail}" for one in verdicts if one.kind == "error"]
        message = "\n".join([ended.message, *effects])
        return replace(ended, outcome="error", message=message) if effects else ended
    session.cause = next((verdict.cause for verdict in verdicts if not verdict.passed), None)
    own = [fails(f"side effect: {effect}", "it would change the results of whatever runs next") for effect in effects]
    outcome = judge(case, [*own, *verdicts])
    if own or not outcome.is_bad:
        return outcome
    with _contained(context, session.start):
        outcome = with_common_cause(outcome, context)
        if session.reproduces and outcome.outcome == "failed":
            outcome = reproduced(outcome, context, unexpected(case, verdicts)[0])
    return outcome


@dataclass
class Contained:
    """The exception and the side effects of code that ran with the settings of a case."""

    error: BaseException | None = None
    """The exception that the code raised."""
    left: list[str] = field(default_factory=list)
    """Descriptions of the settings that the code changed and did not restore."""


@contextmanager
def _contained(context: Context, start: State) -> Iterator[Contained]:
    """Apply the settings of a case, and catch the exception of the body. Only an interrupt from outside propagates."""
    contained = Contained()
    with applied(start, context.device.string) as contained.left, _distinct_interrupts() as distinct:
        try:
            with _forks_ended():
                yield contained
        except _Interrupted:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and not distinct():
                raise
            contained.error = error


@contextmanager
def _forks_ended() -> Iterator[None]:
    """End a process that the body has forked where the body ends: it would go on as if it were this process."""
    process, status = os.getpid(), 0
    try:
        yield
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise
    except BaseException:
        status = 1
        raise
    finally:
        if os.getpid() != process:
            os._exit(status & 0xFF)


@contextmanager
def _seeded(context: Context) -> Iterator[None]:
    """Seed the random number generators for a case, and synchronize with its device at the end.

    Raises DeviceError if the device then reports an error.
    """
    case, device = context.case, context.device
    with warnings.catch_warnings():
        # These warnings concern opcheck's own use of vmap, and imports of torch for it: users cannot act on them.
        warnings.filterwarnings("ignore", "There is a performance drop because we have not yet implemented")
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")
        # This one concerns the layout that a sample asks for.
        warnings.filterwarnings("ignore", "Sparse (CSR|CSC|BSR|BSC) tensor support is in beta state")
        # torch's gradcheck draws cotangents from the global random number generator.
        text = case.id + (f"@{case.base_seed}" if case.base_seed else "")
        device.seed(zlib.crc32(text.encode()))
        yield
    try:
        device.synchronize()  # an asynchronous error belongs to this case
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise DeviceError(one_line(error)) from error


class DeviceError(Exception):
    """An error that a device reports only when it is synchronized."""


def _ended(case: Case, error: BaseException) -> Outcome:
    """Return the outcome of a case that was ended by an exception."""
    if isinstance(error, Unresolved):
        key = "target" if case.operator.spec.target else "name"
        problem = case.operator.problem((key,), str(error), nearest=error.hint)
        return Outcome.of(case, "error", str(problem))
    if isinstance(error, SpecError):
        return Outcome.of(case, "error", str(error))
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return _error(case, f"out of memory: {one_line(error)}")
    if isinstance(error, (DeviceError, getattr(torch, "AcceleratorError", DeviceError))):
        what = str(error) if isinstance(error, DeviceError) else one_line(error)
        return _error(case, f"the device {case.device.name} reports an error: {what}")
    if isinstance(error, Exception):
        frame = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"the check itself broke: {one_line(error)}"
        where = f"at {frame.filename}:{frame.lineno}"
        return Outcome.of(case, "error", reason, f"{case.id}: {reason}\n{where}\nthis is a defect of the check")
    # SystemExit, KeyboardInterrupt and the exceptions of pytest: operators must not raise them.
    if type(error).__name__ == "Failed" and "Timeout" in str(error):  # pytest-timeout interrupts by pytest.fail()
        seconds = re.search(r">\s*([\d.]+)\s*s\b", str(error))
        return _error(case, f"time-out: it takes longer than {float(seconds[1]):g} s" if seconds else one_line(error))
    return _error(case, f"the operator ends the process: {one_line(error)}")


def _error(case: Case, reason: str) -> Outcome:
    """Return an error as the outcome of a case, or `xfailed` if the spec expects this error."""
    return expected(case, Outcome.of(case, "error", reason))


class _Interrupted(KeyboardInterrupt):
    """An interrupt by SIGINT, which comes from outside of the operator."""


@contextmanager
def _distinct_interrupts() -> Iterator[Callable[[], bool]]:
    """Raise _Interrupted instead of KeyboardInterrupt on SIGINT. Yield a function that returns whether this works.

    If so, a plain KeyboardInterrupt comes from the operator. This works only with Python's default handler of SIGINT,
    and not if SIGINT was ignored until a SIGTERM arrived, which is handled like SIGINT.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread():
        yield lambda: True
        return
    if handler is not signal.default_int_handler:
        yield lambda: signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        return

    def interrupt(number: int, frame: Any) -> None:
        raise _Interrupted

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield lambda: True
    finally:
        signal.signal(signal.SIGINT, handler)
