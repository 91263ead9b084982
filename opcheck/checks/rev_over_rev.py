"""The second derivative, reverse over reverse, equals the numerical one."""

from __future__ import annotations

from opcheck.checks.context import Subject
from opcheck.checks.evidence import ask
from opcheck.checks.per_sample import per_sample
from opcheck.checks.verdict import Verdict


def judge(subject: Subject) -> Verdict:
    """Compare the Jacobians of the backward pass, with contiguous and non-contiguous cotangents."""
    return ask(subject, "reverse", order=2)


check = per_sample(judge)
