"""Runs the functions that `opcheck.register_check` registered."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.checks.context import Context
from opcheck.checks.per_sample import per_sample
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, cannot, fails, inapplicable
from opcheck.plan.kind import CheckKind
from opcheck.text import class_of


def check(context: Context) -> Iterator[Verdict]:
    """Call the function of the check for each sample."""
    kind = context.case.kind

    def judge(subject: Subject) -> Verdict:
        return _verdict(kind, subject)

    yield from per_sample(judge, derivative=kind.dtypes == "derivative")(context)


def _verdict(kind: CheckKind, subject: Subject) -> Verdict:
    """Call the function, and turn its answer into a verdict."""
    assert kind.judge is not None
    answer = kind.judge(subject)
    if answer is None:
        return inapplicable("the check returned None, which means that its claim does not apply")
    if isinstance(answer, Verdict):
        return answer
    if isinstance(answer, bool):
        return HOLDS if answer else fails(f"{kind.name}: this does not hold: {kind.claim}")
    return cannot(f"{kind.name}: the check returned {class_of(answer)}", "expected True, False, a Verdict or None")
