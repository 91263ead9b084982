"""Turns a function that judges one sample into a check. Exceptions and failed prerequisites become verdicts."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from typing import Any

import torch

from opcheck.checks.subject import Context, Subject
from opcheck.checks.verdict import (
    EMPTY,
    HOLDS,
    NO_LEAVES,
    OF_NO_LEAVES,
    Raised,
    Verdict,
    blocked,
    cannot,
    combine,
    fails,
    inapplicable,
    out_of_reach,
    refused,
)
from opcheck.derivatives import NO_REFUSAL, TooLarge, is_bug_of_opcheck, tried
from opcheck.derivatives.by_torch import CannotAsk
from opcheck.derivatives.refusals import PACKAGE
from opcheck.planning.expectations import is_about
from opcheck.planning.kinds import check_kinds
from opcheck.samples.modules import ModuleCall
from opcheck.samples.resolve import Unresolved
from opcheck.samples.results import WHAT_IS_TESTED, Untestable
from opcheck.samples.surrogate import Unlike
from opcheck.spec.checks import CheckKind
from opcheck.spec.document import shown
from opcheck.spec.library import Sample
from opcheck.text import class_of, one_line

Judgment = Verdict | bool | Iterator[Verdict] | None
"""The result of a judge at a sample. True: the claim holds. None: the claim does not apply. Of several verdicts, the
first failure counts.
"""
Judge = Callable[[Subject], Judgment]
"""A function that tests the claim of a check at one sample."""
Refusal = Callable[[Subject, str], Verdict]
"""A function that returns the verdict if the operator refuses a sample, from the operator at it and the message."""
Check = Callable[[Context], Iterator[Verdict]]
"""A function that judges a case. It yields a verdict for each sample, and possibly verdicts on the case as a whole."""


def refused_sample(_: Subject, why: str) -> Verdict:
    """Return an error, with a hint if there is one: a sample that the operator refuses tests no claim."""
    return cannot(why, next((hint for words, hint in HINTS if words.search(why)), ""))


HINTS = (
    (
        re.compile(r"(?<!found )(?<!got )\b(int64|Long(Tensor)?)\b|indices must be"),
        'a tensor of indices is written as { shape = [3], dtype = "int64", low = 0, high = 2 }',
    ),
    (
        re.compile(r"missing \d+ required .*argument"),
        "arguments are written in args, in order, or by name, as in kwargs = { dim = 1 }",
    ),
)
"""Words of an exception by which an operator refuses a sample, each with a hint for the spec."""


@dataclass(frozen=True)
class PerSample:
    """A check that applies a function to one sample at a time.

    A sample that cannot be made is an error; so is a sample that the operator refuses, unless `refusal` returns another
    verdict. An exception of the operator in `judge` means that the claim does not hold. It is also an error if no
    sample tests the claim, unless torch cannot test it.
    """

    judge: Judge
    derivative: bool = True
    """Whether the check needs finite differences, and tensors to differentiate with respect to."""
    refusal: Refusal = refused_sample
    """The function that returns the verdict if the operator refuses a sample."""
    tests: str = "the claim"
    """The object of the error message "no sample tests ...", as in "a gradient"."""
    judge_derived: Judge | None = None
    """The function that tests the claim at a derived sample. Default: `judge`."""
    covers: Callable[[Sample, Sample], bool] = lambda written, derived: True
    """A predicate of a written sample and one derived from it: whether the claim covers the derived one."""

    @property
    def for_derived(self) -> PerSample:
        """The check as it is applied at derived samples."""
        return PerSample(self.judge_derived or self.judge, self.derivative, covers=self.covers)

    def __call__(self, context: Context) -> Iterator[Verdict]:
        """Yield a verdict for each sample of a case, and an error for the case if no sample tests the claim."""
        if self.derivative and context.numbers is None:
            yield too_coarse(context)
            return
        reasons: dict[str, Verdict] = {}
        settled = False
        for sample in context.case.samples:
            verdict = self.verdict(context, sample)
            yield verdict
            settled = settled or not verdict.untested or verdict.state == "out of reach"
            if verdict.untested:
                reasons[verdict.title] = verdict
        if not settled:
            why = f": {'; '.join(reasons)}" if reasons else ""
            hint = OF_NO_LEAVES if [*reasons] == [NO_LEAVES.title] else ADD_A_SAMPLE
            error = cannot(f"{context.case.check}: no sample tests {self.tests}{why}", hint)
            fields = [verdict.fields for verdict in reasons.values()]
            yield replace(error, fields=fields[0]) if len(fields) == 1 else error

    def verdict(self, context: Context, sample: Sample) -> Verdict:
        """Return the verdict on one sample, with the data of the sample.

        An unexpected failure includes a diagnosis, and is blocked if a more basic claim fails. Expected failures need
        no diagnosis.
        """
        context.note(f"sample {sample.name}")
        subject = prepared(context, sample, self.derivative, self.refusal)
        if isinstance(subject, Verdict):
            return subject
        if self.derivative and not subject.leaves:
            return with_sample(inapplicable(NO_LEAVES.title), sample, subject)
        known = [expect for expect in context.case.expectations if is_about(expect, sample.name)]

        def is_expected(verdict: Verdict) -> bool:
            return any(verdict.is_expected_by(expect) for expect in known)

        verdict = verdict_by(self.judge, replace(subject, expected=True) if known else subject)
        if known and not (verdict.passed or is_expected(verdict)):
            verdict = self.judged(context, sample)
        if verdict.is_failure and not is_expected(verdict):
            verdict = blame(subject, verdict, context.case.kind.rests_on)
        if verdict.passed and verdict.state != "inapplicable" and _is_empty(subject, self.derivative):
            verdict = EMPTY
        return with_sample(verdict, sample, subject)

    def judged(self, context: Context, sample: Sample) -> Verdict:
        """Prepare one sample and judge it, without a diagnosis."""
        subject = prepared(context, sample, self.derivative, self.refusal)
        return subject if isinstance(subject, Verdict) else verdict_by(self.judge, subject)


def implementation(kind: CheckKind) -> Any:
    """Return the check of a row of the table of checks: the object at `implementation`, or the registered function."""
    if kind.judge is not None:
        return PerSample(kind.judge, derivative=kind.dtypes == "derivative")
    module, _, name = kind.implementation.partition(":")
    return getattr(import_module(module), name)


def too_coarse(context: Context) -> Verdict:
    """Return the verdict for a dtype in which finite differences are meaningless."""
    return cannot(f"{context.case.dtype} is too coarse for finite differences, and no finer dtype is claimed")


ADD_A_SAMPLE = "add a sample that tests it, or set its key in supports to false, or remove the dtype from dtypes"


def prepared(
    context: Context, sample: Sample, derivative: bool, refusal: Refusal = refused_sample
) -> Subject | Verdict:
    """Make the tensors of a sample and call the operator once. Return the subject, or a verdict if that fails."""
    try:
        subject = context.subject(sample)
    except Exception as error:
        return with_sample(cannot(f"the sample cannot be made: {one_line(error)}", cause=error), sample)
    obstacle = _obstacle(subject, derivative, refusal)
    return subject if obstacle is None else with_sample(obstacle, sample, subject)


def _obstacle(subject: Subject, derivative: bool, refusal: Refusal) -> Verdict | None:
    """Call the operator once, so that its errors are not blamed on the check. Return a verdict if it fails."""
    try:
        if subject.function.writes and not subject.fits_in_place:
            return inapplicable("the first argument cannot hold the result")
        # In dtypes without a derivative, some operators refuse inputs that require grad.
        with torch.set_grad_enabled(derivative):
            if isinstance(subject.function.operator, ModuleCall):  # of this case alone: it may keep what a call makes
                _ = subject.result
            _ = subject.output_info if derivative else subject.outputs
    except Untestable as error:
        return cannot(str(error), WHAT_IS_TESTED)
    except NO_REFUSAL as error:
        return out_of_memory(error)
    except Exception as error:
        return replace(refusal(subject, f"the operator refuses the sample: {one_line(error)}"), cause=error)
    if derivative and subject.output_info.sparse:
        return cannot(subject.output_info.sparse, AS_DENSE)
    if derivative and subject.unfit_cotangents:
        return cannot(subject.unfit_cotangents, WHAT_COTANGENTS_ARE)
    unusable = tried(lambda: subject.function.surrogate) if derivative else None
    if not isinstance(unusable, Exception):
        return None
    what = str(unusable) if isinstance(unusable, Unlike) else f"the surrogate raised {one_line(unusable)}"
    return cannot(what, WHAT_A_SURROGATE_IS, cause=unusable)


AS_DENSE = """\
cotangents of sparse tensors are ambiguous: write outputs = { apply = "to_dense" }, or "values" to test what is stored
from Python, pass a function that returns the tensor .to_dense()"""
WHAT_COTANGENTS_ARE = "expected one for each output that requires grad, of its shape and dtype"
WHAT_A_SURROGATE_IS = "expected a function of the same arguments, with outputs of the same shapes and dtypes"


def verdict_by(judge: Judge, subject: Subject) -> Verdict:
    """Call a judge and return its result as a verdict. An exception of the operator means that the claim fails.

    A lack of memory, a mistake in opcheck or in the spec, a claim that torch cannot test and a blocked claim have
    verdicts of their own.
    """
    try:
        answer = judge(subject)
        if isinstance(answer, Iterator):
            return combine(_as_verdict(subject, one) for one in answer)
        return _as_verdict(subject, answer)
    except NO_REFUSAL as error:
        return out_of_memory(error)
    except CannotAsk as error:
        return out_of_reach(str(error))
    except Unresolved as error:  # a name in the spec, such as the reference
        return cannot(f"{subject.check}: {error}", f'did you mean "{error.hint}"?' if error.hint else "")
    except Raised as error:
        if error.check:
            return blocked(error.check, f"{subject.check}: not judged: {error}")
        return raised(subject, error.cause, error.what, error.code)
    except Exception as error:
        if is_bug_of_opcheck(error):
            return cannot(f"{subject.check}: opcheck raised {one_line(error)}", REPORT_IT, cause=error)
        return raised(subject, error)


def _as_verdict(subject: Subject, answer: Verdict | bool | None) -> Verdict:
    if isinstance(answer, Verdict):
        return answer
    if answer is None:
        return inapplicable("the check returned None, which means that its claim does not apply")
    if class_of(answer) in ("bool", "bool_"):  # of Python or NumPy
        return HOLDS if answer else fails(f"{subject.check}: this does not hold: {subject.case.kind.claim}")
    return cannot(f"{subject.check}: the check returned {class_of(answer)}", "expected True, False, a Verdict or None")


REPORT_IT = "this is a mistake in opcheck, not in the operator: please report it"


def raised(subject: Subject, error: Exception, what: str = "", code: str = "") -> Verdict:
    """Return the verdict that the claim does not hold, since the operator raises in the tested operation.

    what: the operation, if the claim is about several, as in "computing the values under torch.no_grad()".
    code: code in plain torch that raises the exception; empty if there is none.
    """
    kind = subject.case.kind
    operation = f"{kind.name}: {what}" if what else kind.name
    return refused(kind, f"{operation} raised {one_line(error)}", code=code, cause=error)


def blame(subject: Subject, verdict: Verdict, claims: Iterable[str]) -> Verdict:
    """Return a failure as blocked by a more basic claim that fails, or is inconclusive, at the same sample.

    It is unchanged if all these claims hold.

    claims: the names of the checks of these claims, the most basic one first. They run even if they are not selected,
    with inputs that no call has modified.
    """
    context = subject.context
    for name in filter(context.is_claimed, claims):
        basic = implementation(check_kinds()[name]).judged(context.under(name), subject.sample)
        if basic.is_failure or basic.state == "inconclusive":
            detail = "\n".join(filter(None, (verdict.title, basic.detail)))  # with the remedy for the basic claim
            title = f"{subject.check}: not judged, since {basic.title}"
            return replace(blocked(name, title, detail), root=basic, cause=verdict.cause)
    return verdict


def out_of_memory(error: Exception) -> Verdict:
    """Return the verdict on a sample that needs more memory than is available, or more than the settings allow.

    A lack of memory is not a refusal by the operator.
    """
    if isinstance(error, TooLarge):
        return cannot(f"the sample is too large: {error}")
    return cannot(f"out of memory: {one_line(error)}", cause=error)


def _is_empty(subject: Subject, derivative: bool) -> bool:
    """Return whether there is nothing to compare: all outputs, or for a derivative all leaves, are empty."""
    if derivative:
        return not subject.output_info.elements or not any(leaf.numel() for leaf in subject.leaves)
    return not any(output.numel() for output in subject.outputs)


def with_sample(verdict: Verdict, sample: Sample, subject: Subject | None = None) -> Verdict:
    """Return a verdict with the name of its sample; a failure also with the place, recipe and arguments."""
    if verdict.passed:
        return Verdict(True, sample=sample.name) if verdict is HOLDS else replace(verdict, sample=sample.name)
    realized = "" if subject is None else subject.inputs.describe()
    place = "" if verdict.cause is None else _place_of(verdict.cause)
    detail = "\n".join(filter(None, (place and f"raised at {place}", verdict.detail)))
    return replace(
        verdict, detail=detail, sample=sample.name, where=sample.where, recipe=sample.toml(), realized=realized
    )


def _place_of(error: BaseException) -> str:
    """Return the line of the operator that raises an exception, as `file:line, in function`; empty if it has none.

    The lines of torch, of the standard library and of opcheck, which call the operator or which it calls, do not count.
    """
    frames = ((frame.f_code, line) for frame, line in walk_tb(error.__traceback__))
    own = [(code, line) for code, line in frames if not _is_around(code.co_filename)]
    if not own:
        return ""
    code, line = own[-1]
    return f"{shown(Path(code.co_filename))}:{line}, in {code.co_name}"


def _is_around(file: str) -> bool:
    is_installed = "site-packages" in file or "dist-packages" in file
    return file.startswith(("<", *AROUND)) or (file.startswith(STDLIB) and not is_installed)


AROUND = (PACKAGE, f"{Path(torch.__file__).parent}{os.sep}")
STDLIB = f"{sysconfig.get_path('stdlib')}{os.sep}"
