"""Second derivatives in the orders that torch's gradgradcheck leaves out, and third ones where a spec asks for them."""

from __future__ import annotations

import torch

from opcheck.checks.context import Subject, per_sample
from opcheck.checks.evidence import ask
from opcheck.checks.verdict import HOLDS, Verdict


def judge(subject: Subject) -> Verdict | None:
    """Put the claim of the case to the engine, for dense inputs."""
    if any(leaf.layout is not torch.strided for leaf in subject.leaves):
        return None
    if not subject.differentiable_outputs:
        return HOLDS  # no derivative, none of it either; that this is right is what `backward` checks
    return ask(subject)


check = per_sample(judge)
