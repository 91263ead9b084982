"""Running backward again gives the same gradients, within the tolerance, at first and at second order."""

from __future__ import annotations

from dataclasses import replace

import torch

from opcheck.checks.calls import Call, ordinary
from opcheck.checks.jacobian.compare import compared
from opcheck.checks.per_sample import PerSample
from opcheck.checks.plain_torch import CALL, asserted
from opcheck.checks.relations import REPEATS
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import Verdict, fails
from opcheck.derivatives import tried
from opcheck.derivatives.coordinates import deviation

REPEATED = f"""\
{CALL}expected = [pulled(outputs, inputs, cotangents)] * 8
actual = [pulled(outputs, inputs, cotangents) for _ in expected]"""


def judge(subject: Subject) -> Verdict:
    """Repeat the backward pass, and the backward pass of backward if second order is claimed."""
    ordinary(subject)  # raises if backward does not work at all
    verdict = compared(subject)
    if verdict.untested or verdict.state == "error" or (verdict.passed and not subject.supports.second_order):
        return verdict
    most = subject.numbers.nondeterminism
    if not verdict.passed:
        hints = filter(None, (DRAWS if _draws(subject) else "", verdict.detail))
        return replace(verdict, detail="\n".join(hints), code=asserted(REPEATED, f", rtol=0, atol={most:g}"))
    call = Call.of(subject)
    cotangents = [v.requires_grad_() for v in call.cotangents]
    again = tried(lambda: call.again(cotangents))
    results = again if isinstance(again, Exception) else tried(lambda: [again.gradient() for _ in range(1 + REPEATS)])
    if isinstance(results, Exception):
        return verdict  # the checks of second order report the exception
    for off in (deviation(results[0], other) for other in results[1:]):
        if not off <= most:
            return fails(f"nondeterminism: two backward passes of backward differ by up to {off:.4g}")
    return verdict


DRAWS = "backward draws random numbers: if it needs those of forward, save them there"


def _draws(subject: Subject) -> bool:
    """Return whether the backward pass draws from the random generator of the device."""
    call = Call.of(subject)
    state_of = getattr(torch.get_device_module(call.leaves[0].device), "get_rng_state", torch.get_rng_state)
    before = state_of()
    call.gradient()
    return not torch.equal(before, state_of())


check = PerSample(judge)
