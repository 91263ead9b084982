"""Second derivatives in the orders that torch's gradgradcheck leaves out, and third derivatives."""

from __future__ import annotations

import torch

from opcheck.checks.engine_verdict import engine_verdict
from opcheck.checks.per_sample import per_sample
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import Verdict, inapplicable


def judge(subject: Subject) -> Verdict:
    """Compare derivatives of higher order with numerical ones, for dense inputs."""
    if any(leaf.layout is not torch.strided for leaf in subject.leaves):
        return inapplicable("derivatives of higher order are taken of dense inputs only")
    return engine_verdict(subject)


check = per_sample(judge)
