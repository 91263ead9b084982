"""The reverse-mode Jacobian equals the numerical one, also through non-contiguous and expanded cotangents."""

from __future__ import annotations

from opcheck.checks.engine_verdict import engine_verdict
from opcheck.checks.per_sample import per_sample
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import Verdict


def judge(subject: Subject) -> Verdict:
    """Compare the reverse-mode Jacobian with the numerical one, for cotangents of any memory layout."""
    return engine_verdict(subject, "reverse")


check = per_sample(judge)
