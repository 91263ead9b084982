"""Derivatives are as accurate as the arithmetic of their dtype allows.

The claimed Jacobians of first and second order are tested, in both modes. A Jacobian that is wrong beyond the
tolerance, or that raises, is left to its own check.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from opcheck.checks.per_sample import PerSample, blame
from opcheck.checks.subject import Context, Subject
from opcheck.checks.verdict import EMPTY_DERIVATIVE, HOLDS, NO_GRAPH, Verdict, blocked, fails, inapplicable
from opcheck.derivatives import tried
from opcheck.derivatives.check_claim import lost_digits
from opcheck.derivatives.sparse import are_movable

DERIVATIVES = ("backward", "forward_ad", "rev_over_rev", "fwd_over_rev")
"""The checks whose Jacobians are tested, if the spec claims them."""


def check(context: Context) -> Iterator[Verdict]:
    """Test for lost digits on all samples. If the spec allows a loss (tolerance.accuracy), a sample must need it."""
    claim = context.case.claims.accuracy(context.case.dtype)
    needed: list[bool] = []

    def judge(subject: Subject) -> Verdict:
        verdict = _judged(subject, 0.0)
        if claim is None or verdict.passed:
            needed.extend([False] * (not verdict.untested))
            return verdict
        needed.append(True)
        return _judged(subject, claim.rtol)

    yield from PerSample(judge)(context)
    if needed and not any(needed) and claim is not None:
        title = "accuracy: the spec disclaims it, but no derivative has lost digits"
        yield fails(title, f"take tolerance.accuracy out of the spec ({claim.reason})")


def _judged(subject: Subject, rtol: float) -> Verdict:
    """Return the verdict on a sample. Derivatives may be off by `rtol` times their largest entry."""
    if not are_movable(subject.leaves):
        return inapplicable("the digits of derivatives are known for strided and sparse inputs only")
    if subject.too_coarse:
        return inapplicable(subject.too_coarse)
    if not subject.output_info.requires_grad:
        return NO_GRAPH
    if not subject.output_info.differentiable:
        return EMPTY_DERIVATIVE
    numbers = replace(subject.numbers, accuracy=rtol)
    right, lost = False, {}
    for name in filter(subject.context.is_claimed, DERIVATIVES):
        disagreement = tried(partial(lost_digits, name, subject.point, numbers))
        if isinstance(disagreement, Exception):
            continue
        right = right or disagreement is None
        if disagreement is not None and disagreement.kind == "low accuracy":
            lost[name] = disagreement
    if lost:
        first = next(iter(lost.values()))
        lines = [f"{name}: {line}" for name, disagreement in lost.items() for line in disagreement.text.splitlines()]
        title = f"accuracy: {', '.join(lost)} lost digits"
        hint = "if this is intended, set tolerance.accuracy = { rtol = ..., reason = ... }"
        what = first.text.splitlines()[0].removeprefix("low accuracy: ")
        return fails(f"{title}: {what}", "\n".join([*lines, hint]), derivatives=list(lost))
    return HOLDS if right else _unjudged(subject)


def _unjudged(subject: Subject) -> Verdict:
    """Return the verdict if no derivative is right: blocked by the check that fails, with the title of its failure."""
    verdict = fails("accuracy: not judged, since no derivative is right")
    cause = blame(subject, verdict, (*subject.case.kind.rests_on, *DERIVATIVES))
    return cause if cause.blocked else blocked("backward", verdict.title)
