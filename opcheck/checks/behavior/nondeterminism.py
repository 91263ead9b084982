"""Running backward again gives the same gradients, within the tolerance, at first and at second order."""

from __future__ import annotations

from dataclasses import replace

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
    ordinary(subject)  # raises Blocked if backward does not work at all
    verdict = compared(subject)
    if verdict.untested or verdict.state == "error" or (verdict.passed and not subject.supports.second_order):
        return verdict
    most = subject.request.numbers.nondeterminism
    if not verdict.passed:
        return replace(verdict, code=asserted(REPEATED, f", rtol=0, atol={most:g}"))
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


check = PerSample(judge)
