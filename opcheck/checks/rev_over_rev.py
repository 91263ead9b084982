"""The second derivative, reverse over reverse, equals the numerical one."""

from __future__ import annotations

from opcheck.checks.engine_verdict import engine_verdict
from opcheck.checks.ordinary import differentiate_twice
from opcheck.checks.per_sample import per_sample
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import Verdict


def judge(subject: Subject) -> Verdict:
    """Compare the Jacobians of the backward pass, with contiguous and non-contiguous cotangents.

    A backward pass that refuses to be differentiated is told so: its exception says more than zeros do.
    """
    verdict = engine_verdict(subject, "reverse", order=2)
    if verdict.is_failure:
        differentiate_twice(subject)
    return verdict


check = per_sample(judge)
