"""Every output that depends on an input requires grad, but for those that the spec lists as not differentiable."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.calls import copies
from opcheck.checks.judging import per_sample
from opcheck.checks.verdict import HOLDS, Verdict, fails
from opcheck.derivatives.autodiff import Primal
from opcheck.derivatives.coordinates import real_size, vector
from opcheck.derivatives.cotangents import probe
from opcheck.derivatives.differences import differences, looped
from opcheck.derivatives.disagreement import called
from opcheck.samples.results import differentiable


def judge(subject: Subject) -> Verdict:
    """Compare with zero the differences of each output that does not require grad, along one direction."""
    claim = subject.supports.outputs
    names = subject.output_info.names
    for index, output in enumerate(subject.outputs):
        name = names[index] if names else ""
        claimed = claim is True or (claim is not False and (index in claim or name in claim))
        if output.requires_grad:
            if not claimed:
                return fails(f"detached: {called(index, name)} requires grad, and supports.outputs leaves it out")
        elif claimed and differentiable((output,)) and output.numel() and (evidence := _depends(subject, index)):
            return fails(f"detached: {called(index, name)} does not require grad, but depends on the inputs", evidence)
    return HOLDS


def _depends(subject: Subject, index: int) -> str:
    """Return the derivative of an output along a direction, as text; an empty string if it is zero, or a jump."""
    numbers = subject.context.numbers
    assert numbers is not None
    leaves = tuple(leaf.detach() for leaf in copies(subject.leaves))
    point, direction = vector(leaves), probe(sum(map(real_size, leaves)))
    fine, coarse = (
        differences(_values(subject, index, leaves, point, direction * step), step).jacobian
        for step in (numbers.eps, 2 * numbers.eps)
    )
    steady = (fine - coarse).abs() <= 0.2 * fine.abs()
    slope = float(torch.where(steady, fine.abs(), torch.zeros_like(fine)).max())
    return f"its derivative along a direction is up to {slope:.4g} by differences" if slope > numbers.atol else ""


def _values(subject: Subject, index: int, leaves: Sequence[Tensor], point: Tensor, step: Tensor) -> Tensor:
    return looped(Primal(subject.function, (index,)), leaves, torch.stack((point + step, point - step, point)), 3)


check = per_sample(judge)
