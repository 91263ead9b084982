"""Second derivatives in the orders that torch's gradgradcheck leaves out, and third derivatives."""

from __future__ import annotations

from opcheck.checks.engine_verdict import engine_verdict
from opcheck.checks.ordinary import is_strided
from opcheck.checks.per_sample import per_sample
from opcheck.checks.raw_gradients import functions_of
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import Verdict, inapplicable, out_of_reach

NOT_ASKED = "torch.func gives zeros for the jvp of the jvp of an autograd.Function, whatever it computes"


def judge(subject: Subject) -> Verdict:
    """Compare derivatives of higher order with numerical ones, for dense inputs."""
    if not is_strided(subject):
        return inapplicable("derivatives of higher order are taken of dense inputs only")
    verdict, kind = engine_verdict(subject), subject.context.case.kind
    if verdict.is_failure and kind.name == "fwd_over_fwd" and functions_of(subject.differentiable_outputs):
        return out_of_reach(NOT_ASKED)
    return verdict


check = per_sample(judge)
