"""Each gradient has the dtype, shape, layout and device of its input, as returned, before autograd converts it."""

from __future__ import annotations

from opcheck.checks.engine_verdict import engine_verdict
from opcheck.checks.per_sample import per_sample
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, fails
from opcheck.derivatives.raw_gradients import raw_gradients


def judge(subject: Subject) -> Verdict:
    """Look at the gradients that users get, and at those that Python backward functions return."""
    verdict = engine_verdict(subject)
    return _raw_gradients(subject) or HOLDS if verdict.passed and not verdict.untested else verdict


def _raw_gradients(subject: Subject) -> Verdict | None:
    fresh = subject.function(*subject.leaves)  # a graph of its own: watching changes the nodes
    for raw in raw_gradients(fresh, subject.leaves):
        if raw.gradient.dtype != raw.dtype:
            return fails(
                f"grad_dtypes: {raw.function} returns a gradient of {raw.gradient.dtype} for an input of {raw.dtype}",
                f"gradient {raw.position} of the backward function; autograd converts it silently, digits are lost",
            )
        if raw.gradient.device != raw.device:
            return fails(
                f"grad_dtypes: {raw.function} returns a gradient on {raw.gradient.device} for one on {raw.device}"
            )
    return None


check = per_sample(judge)
