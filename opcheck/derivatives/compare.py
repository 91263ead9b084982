"""Compares a Jacobian by automatic differentiation with the numerical one, and confirms what it objects to.

One rule decides: |a - n| <= atol + rtol |n| for an analytical entry a and the numerical entry n. For a complex leaf
these are moduli over the columns of the real and the imaginary part, as in torch's gradcheck. Where differences show
that they are far better than atol, it does not excuse an error: see `precision.wrong_below_atol`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Mode
from opcheck.derivatives.batching import Analytical
from opcheck.derivatives.coordinates import (
    largest_difference,
    probe,
)
from opcheck.derivatives.diagnosis import Seen, diagnose
from opcheck.derivatives.differences import Differences, kinks
from opcheck.derivatives.disagreement import Disagreement, Names, Pair
from opcheck.derivatives.evidence import Evidence
from opcheck.derivatives.precision import (
    explained_by_rounding,
    kinks_beyond_rounding,
    least_below_atol,
    wrong_below_atol,
)
from opcheck.derivatives.projected import contradiction_of_projections
from opcheck.derivatives.question import Numbers, Request
from opcheck.derivatives.rule import ACCURATE, NOT_LINEAR, allowed, at_kink, beyond_bound, excess
from opcheck.derivatives.structured import NotIndependent, contradiction_in_slices

# whole Jacobians


def contradiction(evidence: Evidence, mode: Mode, request: Request) -> Disagreement | None:
    """Return where the Jacobian by a mode contradicts the numerical one, or None if it does not."""
    numbers = request.numbers
    if evidence.compressed is not None:
        try:
            return contradiction_in_slices(evidence, evidence.compressed, mode, request)
        except NotIndependent:
            evidence.compressed = None
    if evidence.projections is not None:
        return contradiction_of_projections(evidence, mode, request)
    analytical, numerical = evidence.analytical(mode), evidence.numerical(numbers.eps)
    off = largest_difference(analytical.jacobian, numerical.jacobian)
    close = off <= min(ACCURATE, numbers.atol, least_below_atol(numbers))
    linear = analytical.holds(1e4 * evidence.unit)
    if close and linear and numerical.most_bend <= numbers.atol:
        return None  # as almost always
    beyond = not linear or bool((excess(analytical.jacobian, numerical.jacobian, evidence.leaves, numbers) > 0).any())
    if not beyond and not bool(wrong_below_atol(analytical.jacobian, evidence.numerical, evidence, numbers).any()):
        bound = allowed(numerical.jacobian, evidence.leaves, numbers)
        bent = bool((numerical.bend.abs() > bound).any())
        if not bent or not bool(kinks(numerical, evidence.numerical(2 * numbers.eps), bound).any()):
            return None
    return (_worst_confirmed(evidence, mode, request) if request.expected else None) or _confirmed(
        evidence, mode, request
    )


def _worst_confirmed(evidence: Evidence, mode: Mode, request: Request) -> Disagreement | None:
    """Return that the Jacobians differ, if ordinary calls confirm the worst entry; None if they do not, or at a kink.

    For a disagreement that is expected: what it looks like, nobody asks.
    """
    numbers, leaves = request.numbers, evidence.leaves
    analytical, numerical = evidence.analytical(mode).jacobian, evidence.numerical(numbers.eps).jacobian
    row, column = divmod(int(excess(analytical, numerical, leaves, numbers).argmax()), evidence.size[1])
    along = torch.eye(evidence.size[1], dtype=torch.float64)[column : column + 1]

    def at(step: float) -> Differences:
        return evidence.looped_differences(along, step)

    if mode == "forward":
        entries = evidence.jvp(along[0])
    else:
        entries = evidence.vjp(torch.eye(evidence.size[0], dtype=torch.float64)[row])[column].reshape(1)
    slopes = at(numbers.eps)
    right, bend = (part[:, 0] if mode == "forward" else part[row] for part in (slopes.jacobian, slopes.bend))
    off, bound = (entries - right).abs(), numbers.atol + numbers.rtol * right.abs()
    if not bool((off > 2 * bound).any()) or bool((bend.abs() > bound).any()):
        return None
    called = Names.of(evidence.function, request)
    beyond = excess(analytical, numerical, leaves, numbers)
    pair = Pair(numerical, analytical, beyond, evidence.outputs, leaves, called)
    return Disagreement("the Jacobians differ", "wrong", pair.mismatch(), (), tuple(pair.worst()))


def _confirmed(evidence: Evidence, mode: Mode, request: Request) -> Disagreement | None:
    """Compare again, one point and one direction at a time, before anything is reported."""
    numbers, leaves = request.numbers, evidence.leaves
    analytical = evidence.analytical(mode, looped=True)
    numerical = evidence.numerical(numbers.eps, looped=True)
    bound = allowed(numerical.jacobian, leaves, numbers)
    at = partial(evidence.numerical, looped=True)
    beyond = excess(analytical.jacobian, numerical.jacobian, leaves, numbers)
    beyond[explained_by_rounding(analytical.jacobian, at, evidence, numbers)] = 0.0
    wrong, small, kinky = beyond > 0, *torch.zeros(2, *beyond.shape, dtype=torch.bool)
    if bool((wrong | (numerical.bend.abs() > bound)).any()):
        kinky = kinks_beyond_rounding(at, numbers, bound, evidence.unit)
    if not bool((wrong & ~kinky).any()):  # else it is wrong anyway, and further steps take many calls
        small = wrong_below_atol(analytical.jacobian, at, evidence, numbers) & ~wrong
    if bool(small.any()):
        if not bool(wrong.any()):  # whatever is as small as atol looks like zero
            numbers = replace(numbers, atol=min(numbers.atol, 1e-3 * float(numerical.jacobian.abs().max())))
        beyond, wrong = torch.where(small, (analytical.jacobian - numerical.jacobian).abs(), beyond), wrong | small
    called = Names.of(evidence.function, request)
    pair = Pair(numerical.jacobian, analytical.jacobian, beyond, evidence.outputs, leaves, called)
    if bool(kinky.any()) and not bool((wrong & ~kinky).any()):
        agrees = not bool(wrong.any())
        text = at_kink(kinky.any(dim=0).nonzero().flatten().tolist(), evidence.point, leaves, called.leaves)
        return Disagreement(text, "inconclusive", pair.mismatch(), agrees=agrees)
    if bool(wrong.any()):
        findings = tuple(diagnose(pair, numbers, Seen.of(evidence, mode)))
        found = Disagreement(
            "the Jacobians differ", "wrong", pair.mismatch(), findings, tuple(pair.worst()), pair,
            below_atol=not bool((wrong & ~small).any()),
        )  # fmt: skip
        return replace(found, text=found.shown())
    return _not_linear(analytical, numerical.jacobian, evidence, mode, numbers)


def _not_linear(
    analytical: Analytical, numerical: Tensor, evidence: Evidence, mode: Mode, numbers: Numbers
) -> Disagreement | None:
    """Given a Jacobian that is right for each unit vector, return why it is wrong for a sum of them, or None."""
    direction = probe(evidence.size[0 if mode == "reverse" else 1])
    off = (analytical.predicted - analytical.ordinary).abs()
    magnitudes = numerical.abs().T if mode == "reverse" else numerical.abs()
    bound = numbers.atol * direction.abs().sum() + numbers.rtol * (magnitudes @ direction.abs())
    if not bool((beyond_bound(off, bound) > 0).any()):
        return None
    random = Seen.of(evidence, mode).random
    return Disagreement(
        random
        or f"the {NOT_LINEAR[mode]}: right for each unit vector, off by {float(off.max()):.4g} for a random direction"
    )
