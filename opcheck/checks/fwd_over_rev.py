"""The second derivative, forward over reverse, equals the numerical one."""

from __future__ import annotations

from opcheck.checks.context import Subject, per_sample
from opcheck.checks.evidence import ask
from opcheck.checks.verdict import HOLDS, Verdict


def judge(subject: Subject) -> Verdict:
    """Compare the Jacobians of the backward pass, by forward mode."""
    if not subject.differentiable_outputs:
        return HOLDS  # no backward pass, no derivative of it; that this is right is what `backward` checks
    return ask(subject, "forward", order=2)


check = per_sample(judge)
