"""Applies a check at derived samples, and shrinks those that fail: for `derived`, and for checks of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from opcheck.checks.attempts import Attempt, at_derived, attempt, attempts
from opcheck.checks.per_sample import PerSample, verdict_by, with_sample
from opcheck.checks.subject import Context
from opcheck.checks.verdict import Verdict
from opcheck.samples.cache import Cache
from opcheck.samples.derive import Derived, smallest
from opcheck.spec.dtypes import HALF
from opcheck.spec.library import Sample


@dataclass(frozen=True)
class OfValues(PerSample):
    """A check of values, which also hold at derived samples.

    If derivatives are tested there, the check `derived` tests values, too: a kernel that leaves out the last columns in
    forward and in backward has right derivatives, but wrong values. If not, this check derives samples itself.
    """

    derivative: bool = False

    def verdict(self, context: Context, sample: Sample) -> Verdict:
        """Return the verdict on a sample and, unless the check `derived` does it, on the samples derived from it."""
        verdict = super().verdict(context, sample)
        if not verdict.passed or verdict.untested or not derives_alone(context):
            return verdict
        counts, own = Counter[str](), replace(context, requires_grad=False)
        for one, made in attempts(own, sample, context.is_thorough):
            failure = failure_at(own, made, one, context.case.check, self.for_derived) if made.has_values else None
            if failure is not None:
                return with_sample(failure, sample, context.subject(sample))
            counts[made.answer or ("hold" if is_covered(own, self, made.written, one.sample) else "inconclusive")] += 1
        return replace(verdict, fields={**verdict.fields, "derived": dict(counts)}) if counts else verdict


def derives_alone(context: Context) -> bool:
    """Return whether a check derives samples itself, since `derived` has no case for the operator."""
    case = context.case
    if context.derive == "none" or not case.operator.has_varied_samples or case.expectations:
        return False
    return not context.is_claimed("derived") or set(case.claims.backward) <= {*HALF}


def is_covered(context: Context, check: PerSample, written: Sample, other: Sample) -> bool:
    """Return whether the claim of a check covers a sample derived from a written one, see `PerSample.covers`."""
    module = context.case.operator.spec.module
    return check.covers(*(one if one.module else replace(one, module=module) for one in (written, other)))


def failure_at(context: Context, made: Attempt, one: Derived, name: str, check: PerSample) -> Verdict | None:
    """Return the failure of a check at a derived sample; None if it holds, or fails at the written sample as well.

    made: the call at the derived sample; name: the name of the check.
    """
    written, said_of = made.written, partial(_said_by, name, check)
    if not is_covered(context, check, written, one.sample):
        return None
    if said_of(made) != name or said_of(attempt(context, written, written)) != "hold":
        return None
    if not _verdict(context, name, check, one.sample).is_failure:  # it is blocked
        return None
    return confirmed(context, written, one, name, check, said_of)


def confirmed(
    context: Context, written: Sample, one: Derived, name: str, check: PerSample, said_of: Callable[[Attempt], str]
) -> Verdict | None:
    """Return the verdict of a check at the smallest sample that fails; None if it fails neither there nor at `one`.

    said_of: returns the name of the check for a call that fails.
    """
    sample, words = smallest(one, written, lambda sample: said_of(attempt(context, written, sample)), name)
    for candidate in (sample, one.sample):
        verdict = _verdict(context, name, check, candidate)
        if verdict.is_failure or verdict.blocked:  # blocked: another claim fails there
            root = verdict.root or verdict
            own = replace(verdict, title=root.title, blocked="", root=None)
            return at_derived(one, own, verdict.blocked or name, candidate, words if candidate is sample else ())
    return None


def without_slow_tests(context: Context, check: str) -> Context:
    """Return the context under another check, without its slow tests."""
    return replace(context.under(check), overrides={**context.overrides, "derive": "standard"})


def _said_by(name: str, check: PerSample, made: Attempt) -> str:
    """Return the name of a check if it fails at a sample, "hold" if it does not, or why it does not run there."""
    if made.subject is None or not made.has_values:
        return str(made.answer)
    verdict = verdict_by(check.judge, replace(made.subject, context=without_slow_tests(made.subject.context, name)))
    return name if verdict.is_failure and verdict.state != "refused" else "hold"


def _verdict(context: Context, name: str, check: PerSample, sample: Sample) -> Verdict:
    """Return the verdict of a check at a sample, with a cache of its own: derived samples have the same name."""
    return check.verdict(replace(without_slow_tests(context, name), cache=Cache()), sample)
