"""Running backward again gives the same result, within the tolerance, at first and at second order."""

from __future__ import annotations

from opcheck.checks.engine_verdict import engine_verdict
from opcheck.checks.ordinary import Call, ordinary
from opcheck.checks.per_sample import per_sample
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import Verdict, fails
from opcheck.derivatives import NO_REFUSAL
from opcheck.derivatives.coordinates import deviation

REPEATS = 3
"""How often the backward pass of backward is repeated."""


def judge(subject: Subject) -> Verdict:
    """Ask the engine about backward, and repeat the backward pass of backward here."""
    ordinary(subject)  # a backward pass that raises is no matter of chance
    verdict = engine_verdict(subject)
    if not verdict.passed or verdict.untested or not subject.context.case.claims.supports.second_order:
        return verdict
    call = Call.of(subject)
    cotangents = tuple(v.requires_grad_() for v in call.cotangents)
    try:
        first, *others = (call.pulled_back_twice(cotangents) for _ in range(1 + REPEATS))
    except NO_REFUSAL:
        raise
    except Exception:
        return verdict  # second order has checks of its own, which say that it does not work
    for off in (deviation(first, again) for again in others):
        if not off <= subject.request.numbers.nondeterminism:
            return fails(f"nondeterminism: two backward passes of backward differ by up to {off:.4g}")
    return verdict


check = per_sample(judge)
