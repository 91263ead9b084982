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
    directions,
    largest_difference,
    probe,
)
from opcheck.derivatives.diagnosis import Seen, diagnose
from opcheck.derivatives.differences import kinks
from opcheck.derivatives.disagreement import Disagreement, Names, Pair
from opcheck.derivatives.evidence import Evidence
from opcheck.derivatives.precision import least_below_atol, projections, wrong_below_atol, wrong_projections_below_atol
from opcheck.derivatives.question import Numbers, Request
from opcheck.derivatives.rule import ACCURATE, KINK, NOT_LINEAR, allowed, at_kink, beyond_bound, excess
from opcheck.derivatives.structured import NotIndependent, contradiction_in_slices

HOW = 'which entries are wrong: run a smaller sample, or jacobian = "full"'


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
        return _projected(evidence, mode, numbers)
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
    return _confirmed(evidence, mode, request)


def _confirmed(evidence: Evidence, mode: Mode, request: Request) -> Disagreement | None:
    """Compare again, one point and one direction at a time, before anything is reported."""
    numbers, leaves = request.numbers, evidence.leaves
    analytical = evidence.analytical(mode, looped=True)
    numerical = evidence.numerical(numbers.eps, looped=True)
    bound = allowed(numerical.jacobian, leaves, numbers)
    beyond = excess(analytical.jacobian, numerical.jacobian, leaves, numbers)
    wrong, small, kinky = beyond > 0, *torch.zeros(2, *beyond.shape, dtype=torch.bool)
    if bool((wrong | (numerical.bend.abs() > bound)).any()):
        kinky = kinks(numerical, evidence.numerical(2 * numbers.eps, looped=True), bound)
    if not bool((wrong & ~kinky).any()):  # else it is wrong anyway, and further steps take many calls
        small = (
            wrong_below_atol(analytical.jacobian, partial(evidence.numerical, looped=True), evidence, numbers) & ~wrong
        )
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
            "the Jacobians differ", "wrong", pair.mismatch(), findings, tuple(pair.worst()),
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


# projections: k random directions on each side, k x k numbers v^T J u instead of M x N


def _projected(evidence: Evidence, mode: Mode, numbers: Numbers) -> Disagreement | None:
    """Return where the projected Jacobian by a mode contradicts the numerical one, or None if it does not.

    If the errors e of the entries are independent and at most atol, v^T e u is about atol |v| |u| (Euclidean norms).
    That much is allowed, plus rtol of the number itself. torch's fast mode allows atol |v|_1 |u|_1, as if all errors
    had the worst sign: about 3 n / 4 times as much for n inputs and outputs. A wrong entry is multiplied by two random
    numbers. With k x k pairs of them it is unlikely that all products are small.
    """
    for looped in (False, True):  # what the batch objects to is confirmed one by one
        analytical = evidence.analytical(mode, looped=looped)
        numerical = evidence.numerical(numbers.eps, looped=looped)
        u = directions(evidence.size[1], evidence.projections, "inputs")
        v = directions(evidence.size[0], evidence.projections, "outputs")
        n = v @ numerical.jacobian
        a = projections(analytical.jacobian, evidence, mode)
        bound = numbers.atol * torch.outer(v.norm(dim=1), u.norm(dim=1)) + numbers.rtol * n.abs()
        wrong = beyond_bound((a - n).abs(), bound) > 0
        wrong |= wrong_projections_below_atol(a, evidence, numbers, looped=looped)
        if not bool(wrong.any()):
            break
    wanted = numbers.atol + numbers.rtol * numerical.jacobian.abs()
    if bool((numerical.bend.abs() > wanted).any()):
        fine, coarse = (evidence.numerical(step, looped=True) for step in (numbers.eps, 2 * numbers.eps))
        if bool(kinks(fine, coarse, wanted).any()):
            return Disagreement(KINK.format("near here"), "inconclusive", agrees=not bool(wrong.any()))
    if not bool(wrong.any()):
        return _projected_not_linear(evidence, mode, numbers, n, u, v)
    row, column = divmod(int((a - n).abs().nan_to_num(nan=float("inf")).argmax()), n.shape[1])
    random = Seen.of(evidence, mode).random
    return Disagreement(
        f"v J u is {float(n[row, column]):.8g} numerically, {float(a[row, column]):.8g} analytically, for random "
        f"directions {row} and {column}\n{int(wrong.sum())} of {wrong.numel()} such projections of a Jacobian of shape "
        f"{tuple(evidence.size)} differ\n{random or HOW}"
    )


def _projected_not_linear(
    evidence: Evidence, mode: Mode, numbers: Numbers, n: Tensor, u: Tensor, v: Tensor
) -> Disagreement | None:  # fmt: skip
    """Given a derivative that is right for each direction, return why it is wrong for their sum, or None."""
    if mode == "reverse":
        found, expected, lengths = evidence.vjp(v.sum(0)) @ u.T, n.sum(0), v.sum(0).norm() * u.norm(dim=1)
    else:
        found, expected, lengths = v @ evidence.jvp(u.sum(0)), n.sum(1), v.norm(dim=1) * u.sum(0).norm()
    off = (found - expected).abs()
    if not bool((beyond_bound(off, numbers.atol * lengths + numbers.rtol * expected.abs()) > 0).any()):
        return None
    return Disagreement(
        f"the {NOT_LINEAR[mode]}: right for each of {evidence.projections} random directions, off by up to "
        f"{float(off.max()):.4g} for their sum"
    )
