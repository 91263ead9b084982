"""Second derivatives in the orders that torch's gradgradcheck leaves out, and third derivatives."""

from __future__ import annotations

from opcheck.checks.engine_verdict import engine_verdict
from opcheck.checks.ordinary import is_strided
from opcheck.checks.per_sample import per_sample
from opcheck.checks.raw_gradients import functions_of
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import Verdict, inapplicable, out_of_reach

NOT_ASKED = "torch cannot take the jvp of the jvp of an autograd.Function: it gives zeros, or wants setup_context"


def judge(subject: Subject) -> Verdict:
    """Compare derivatives of higher order with numerical ones, for dense inputs."""
    if not is_strided(subject):
        return inapplicable("derivatives of higher order are taken of dense inputs only")
    if subject.context.case.check == "fwd_over_fwd" and functions_of(subject.differentiable_outputs):
        return out_of_reach(NOT_ASKED)
    return engine_verdict(subject)


check = per_sample(judge)
