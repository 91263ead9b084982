"""The second derivative, forward over reverse, equals the numerical one."""

from __future__ import annotations

from opcheck.checks.engine_verdict import engine_verdict
from opcheck.checks.per_sample import per_sample
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import Verdict


def judge(subject: Subject) -> Verdict:
    """Compare the Jacobian of the backward pass, taken in forward mode, with the numerical one."""
    return engine_verdict(subject, "forward", order=2)


check = per_sample(judge)
