"""Each input alone requiring grad, and all of them, give the same gradients."""

from __future__ import annotations

from opcheck.checks.ordinary import Call, compared, copies, ordinary
from opcheck.checks.per_sample import per_sample
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, fails
from opcheck.derivatives.coordinates import parts, real_size, vector


def judge(subject: Subject) -> Verdict:
    """Compare the gradient of each leaf that requires grad alone, and the values where none does."""
    expected = ordinary(subject)
    slices = parts(expected.gradient, map(real_size, subject.leaves))
    for index in (None, *range(len(subject.leaves))):
        leaves = tuple(leaf.requires_grad_(k == index) for k, leaf in enumerate(copies(subject.leaves)))
        call = Call.of(subject, leaves)
        whose = "no input" if index is None else f"only {subject.leaf_names[index]}"
        verdict = compared(subject, f"the values where {whose} requires grad", vector(call.outputs), expected.value)
        if index is None and any(output.requires_grad for output in call.outputs):
            verdict = fails("needs_input_grad: an output requires grad where no input does")
        elif index is not None and verdict.passed:
            alone = Call((leaves[index],), call.outputs).pulled_back(call.cotangents)
            verdict = compared(subject, f"the gradient where {whose} requires grad", alone, slices[index])
        if not verdict.passed:
            return verdict
    return HOLDS


check = per_sample(judge)
