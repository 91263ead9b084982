"""Each gradient has the dtype, shape, layout and device of its input, even before autograd converts it."""

from __future__ import annotations

from opcheck.checks.jacobian.compare import compared
from opcheck.checks.per_sample import PerSample
from opcheck.checks.raw_gradients import raw_gradients
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, fails


def judge(subject: Subject) -> Verdict:
    """Check the gradients that users get, and those that backward functions in Python return."""
    verdict = compared(subject)
    return _raw_gradients(subject) or HOLDS if verdict.passed and not verdict.untested else verdict


def _raw_gradients(subject: Subject) -> Verdict | None:
    fresh = subject.function(*subject.leaves)  # a new graph: hooks change its nodes
    for raw in raw_gradients(fresh, subject.leaves):
        if raw.gradient.dtype != raw.dtype:
            return fails(
                f"grad_dtypes: {raw.function} returns a gradient of {raw.gradient.dtype} for an input of {raw.dtype}",
                raw.converted,
            )
        if raw.gradient.device != raw.device:
            return fails(
                f"grad_dtypes: {raw.function} returns a gradient on {raw.gradient.device} for an input on {raw.device}"
            )
    return None


check = PerSample(judge)
