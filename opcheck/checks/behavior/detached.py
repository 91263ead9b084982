"""Every output that depends on an input requires grad, unless supports.outputs leaves it out."""

from __future__ import annotations

import torch

from opcheck.checks.calls import direction_of, slope
from opcheck.checks.per_sample import PerSample
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, cannot, fails, inapplicable
from opcheck.derivatives.coordinates import real_size
from opcheck.derivatives.tolerances import Numbers, too_coarse_in
from opcheck.samples.results import differentiable, has_derivative
from opcheck.spec.problems import unknown, worded


def judge(subject: Subject) -> Verdict:
    """Fail if an output that does not require grad depends on the inputs, or an output that is left out requires grad.

    Dependence is tested by central differences along one random direction.
    """
    claim, too_coarse = subject.supports.outputs, ""
    positions = range(len(subject.outputs))
    known = [*positions, *subject.output_info.names]
    entries = claim if isinstance(claim, tuple) else positions if claim else ()
    for entry in entries:
        if entry not in known:
            return cannot(f"detached: supports.outputs: {worded(*unknown('output', entry, known))}")
    claimed = {place % len(positions) for place, entry in enumerate(known) if entry in entries}
    for index, (label, output) in enumerate(zip(subject.output_names, subject.outputs, strict=True)):
        if output.requires_grad:
            if index not in claimed:
                return fails(f"detached: {label} requires grad, and supports.outputs leaves it out")
            continue
        if index not in claimed or not has_derivative(output) or not output.numel():
            continue
        dtype = subject.coarsest([output])
        numbers = subject.context.numbers_in(dtype)
        if numbers is None:
            too_coarse = too_coarse_in(dtype)
        elif evidence := _depends(subject, index, numbers):
            place = len(differentiable(subject.outputs[:index]))
            return fails(
                f"detached: {label} does not require grad, but depends on the inputs",
                evidence,
                code=f"assert function(*inputs)[{place}].requires_grad, 'it depends on the inputs'",
            )
    return inapplicable(too_coarse) if too_coarse else HOLDS


def _depends(subject: Subject, index: int, numbers: Numbers) -> str:
    """Return the largest derivative of an output along a random direction, as text; empty if it is within atol of zero.

    Entries that change by more than 20% at twice the step are left out: the output has a jump there.
    """
    direction = direction_of(subject)
    sizes = [real_size(output) if has_derivative(output) else 0 for output in subject.outputs]
    fine, coarse = (torch.split(slope(subject, direction, k * numbers.eps), sizes)[index] for k in (1, 2))
    steady = (fine - coarse).abs() <= 0.2 * fine.abs()
    most = float(torch.where(steady, fine.abs(), 0.0).max())
    return f"its derivative along a direction is up to {most:.4g} by differences" if most > numbers.atol else ""


check = PerSample(judge)
