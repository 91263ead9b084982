"""Judges a case sample by sample, and tells apart who is at fault where a claim cannot be tested or does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from opcheck.checks.context import Check, Context, Subject
from opcheck.checks.verdict import HOLDS, Verdict, cannot, fails, inapplicable, told, untested
from opcheck.derivatives import NO_REFUSAL, TooLarge
from opcheck.samples.results import WHAT_IS_TESTED, Untestable
from opcheck.spec.library import Sample

Judge = Callable[[Subject], Verdict | None]
"""A judgement of one sample. None: the claim does not apply to it."""
Refusal = Callable[[str], Verdict]
"""What it means that the operator refuses a sample, given as a line of text."""


def per_sample(judge: Judge, *, derivative: bool = True) -> Check:
    """Turn a judgement of one sample into a check of a case.

    A sample that cannot be made, or that the operator refuses, is an error; an exception of the judgement means that
    the claim does not hold. Where no sample shows anything about the claim, that is an error, too.
    """

    def check(context: Context) -> Iterator[Verdict]:
        if derivative and context.numbers is None:
            yield cannot(f"{context.case.dtype} is too coarse for finite differences, and no finer dtype is claimed")
        else:
            yield from each(context, judge, derivative)

    return check


def each(context: Context, judge: Judge, derivative: bool, refusal: Refusal = cannot) -> Iterator[Verdict]:
    """Yield the verdict on each sample, and one on the case where none of them tests anything."""
    reasons: dict[str, None] = {}
    tested = False
    for sample in context.samples:
        verdict = judged(context, sample, judge, derivative, refusal)
        yield verdict
        tested = tested or not verdict.untested
        if verdict.untested:
            reasons[verdict.title] = None
    if not tested:
        yield cannot(f"{context.case.check}: no sample shows whether the claim holds", "\n".join([*reasons, REMEDY]))


REMEDY = "give one that does, or take the claim back under supports or dtypes"


def judged(context: Context, sample: Sample, judge: Judge, derivative: bool, refusal: Refusal = cannot) -> Verdict:
    """Return the verdict on one sample, with the sample's own data."""
    subject = prepared(context, sample, derivative, refusal)
    if isinstance(subject, Verdict):
        return subject
    if derivative and not subject.leaves:
        verdict = inapplicable("no tensor to differentiate with respect to")
    else:
        verdict = _judged(subject, judge, derivative)
    return placed(verdict, sample, subject)


def prepared(context: Context, sample: Sample, derivative: bool, refusal: Refusal = cannot) -> Subject | Verdict:
    """Return a sample made real, for which the operator works; else the verdict that says why not."""
    try:
        subject = context.subject(sample)
    except Exception as error:
        return placed(replace(cannot(f"the sample cannot be made: {told(error)}"), cause=error), sample)
    try:
        if subject.function.inplace and not subject.fits_in_place:
            return placed(inapplicable("the first argument cannot hold the result"), sample)
        # Some operators refuse inputs that require grad in dtypes that they have no derivative for.
        with torch.set_grad_enabled(derivative):
            # Evaluated here, so that its exceptions are told apart. That it works need be seen once for derivatives,
            # by the first check of a group; others look at the values.
            _ = subject.seen if derivative else subject.outputs
    except Untestable as error:
        return placed(cannot(str(error), WHAT_IS_TESTED), sample, subject)
    except NO_REFUSAL as error:
        return placed(too_much(error), sample, subject)
    except Exception as error:
        verdict = refusal(f"the operator refuses the sample: {told(error)}")
        return placed(replace(verdict, cause=error), sample, subject)
    return subject


def _judged(subject: Subject, judge: Judge, derivative: bool) -> Verdict:
    try:
        verdict = judge(subject)
    except NO_REFUSAL as error:
        return too_much(error)
    except Exception as error:
        check = subject.context.case.check
        return replace(fails(f"{check} raised {told(error)}", remedy(check)), cause=error)
    if verdict is None:
        return inapplicable("the claim does not apply")
    return untested("inputs or outputs are empty") if verdict.passed and _is_empty(subject, derivative) else verdict


def too_much(error: Exception) -> Verdict:
    """Return the verdict on a sample that takes more than there is, or than it may: the operator did not refuse it."""
    if isinstance(error, TooLarge):
        return cannot(f"the sample is too large: {error}")
    return replace(cannot(f"out of memory: {told(error)}"), cause=error)


def _is_empty(subject: Subject, derivative: bool) -> bool:
    """Tell whether there was not a single number to compare."""
    if derivative:
        return not subject.seen.elements or not any(leaf.numel() for leaf in subject.leaves)
    return not any(output.numel() for output in subject.outputs)


def placed(verdict: Verdict, sample: Sample, subject: Subject | None = None) -> Verdict:
    """Return a verdict with the data of its sample."""
    if verdict.passed:
        return Verdict(True, sample=sample.name) if verdict is HOLDS else replace(verdict, sample=sample.name)
    realized = "" if subject is None else subject.inputs.describe()
    return replace(verdict, sample=sample.name, where=sample.where, recipe=sample.toml(), realized=realized)


def remedy(check: str) -> str:
    """Return how to say in the spec that a failing claim is not meant to hold."""
    claim = CLAIM_OF.get(check)
    return f"if this is how it should be, write supports.{claim} = false" if claim else ""


CLAIM_OF = {
    "backward": "backward",
    "forward_ad": "forward_ad",
    "batched_grad": "batched_grad",
    "batched_forward_grad": "batched_forward_grad",
    "undefined_grad": "undefined_grad",
    "rev_over_rev": "second_order",
    "fwd_over_rev": "fwd_over_rev",
    "masked": "masked",
    "vmap": "vmap",
}
