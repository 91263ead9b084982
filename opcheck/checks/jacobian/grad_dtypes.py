"""Each gradient has the dtype, shape, layout and device of its input, even before autograd converts it."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.checks.calls import ordinary
from opcheck.checks.jacobian.compare import compared
from opcheck.checks.per_sample import PerSample
from opcheck.checks.raw_gradients import raw_gradients
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import Verdict, fails


def judge(subject: Subject) -> Iterator[Verdict]:
    """Test the gradients that users get, and those that backward functions in Python return."""
    ordinary(subject)  # raises if backward does not work at all
    verdict = compared(subject)
    yield verdict
    if verdict.untested:
        return
    fresh = subject.function(*subject.leaves)  # a new graph, since its nodes are patched
    for raw in raw_gradients(fresh, subject.leaves):
        what = f"grad_dtypes: {raw.function} returns a gradient"
        if raw.gradient.dtype != raw.dtype:
            yield fails(f"{what} of {raw.gradient.dtype} for an input of {raw.dtype}", raw.converted)
        if raw.gradient.device != raw.device:
            yield fails(f"{what} on {raw.gradient.device} for an input on {raw.device}")


check = PerSample(judge)
