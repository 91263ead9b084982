"""The reverse-mode Jacobian equals the numerical one, also through non-contiguous and expanded cotangents."""

from __future__ import annotations

from opcheck.checks.engine_verdict import engine_verdict
from opcheck.checks.per_sample import per_sample
from opcheck.checks.subject import Subject
from opcheck.checks.truth import by_reference
from opcheck.checks.verdict import Verdict
from opcheck.derivatives.question import Function
from opcheck.samples import Unresolved


def judge(subject: Subject) -> Verdict:
    """Compare the reverse-mode Jacobian with the numerical one, for cotangents of any memory layout."""
    return engine_verdict(subject, "reverse", reference=_reference(subject))


def _reference(subject: Subject) -> Function | None:
    """Return the differentiable reference as a function of the leaves; None if the spec has none."""
    if not subject.context.case.operator.has_differentiable_reference:
        return None
    try:
        return by_reference(subject, subject.inputs).function
    except Unresolved:  # the check `reference` says so
        return None


check = per_sample(judge)
