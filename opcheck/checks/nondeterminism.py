"""Running backward again gives the same result, within the tolerance, at first and at second order."""

from __future__ import annotations

import torch
from torch import Tensor

from opcheck.checks.engine_verdict import engine_verdict
from opcheck.checks.ordinary import Call, ordinary
from opcheck.checks.per_sample import per_sample
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import Verdict, fails
from opcheck.derivatives import NO_REFUSAL

REPEATS = 3
"""How often the backward pass of backward is repeated."""


def judge(subject: Subject) -> Verdict:
    """Ask the engine about backward, and repeat the backward pass of backward here."""
    ordinary(subject)  # a backward pass that raises is no matter of chance
    verdict = engine_verdict(subject)
    if not verdict.passed or verdict.untested or not subject.context.case.claims.supports.second_order:
        return verdict
    call = Call.of(subject)
    try:
        first, *others = (_twice(call) for _ in range(1 + REPEATS))
    except NO_REFUSAL:
        raise
    except Exception:
        return verdict  # second order has checks of its own, which say that it does not work
    most = max(_difference(first, again) for again in others)
    if most <= subject.request.numbers.nondeterminism:
        return verdict
    return fails(f"nondeterminism: two backward passes of backward differ by up to {most:.4g}")


def _twice(call: Call) -> Tensor:
    """Return the gradients of the gradients, of leaves and of cotangents."""
    cotangents = [v.clone().requires_grad_() for v in call.cotangents]
    pairs = [(y, v) for y, v in zip(call.outputs, cotangents, strict=True) if y.requires_grad]
    found = torch.autograd.grad(
        [y for y, _ in pairs], call.leaves, [v for _, v in pairs], create_graph=True, allow_unused=True
    )
    gradients = tuple(g for g in found if g is not None and g.requires_grad)
    return Call((*call.leaves, *cotangents), gradients).pulled_back()


def _difference(one: Tensor, other: Tensor) -> float:
    equal = (one == other) | (one.isnan() & other.isnan())
    return float(torch.where(equal, 0.0, (one - other).abs()).max()) if one.numel() else 0.0


check = per_sample(judge)
