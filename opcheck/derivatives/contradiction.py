"""Where the Jacobian by automatic differentiation contradicts the numerical one, confirmed before it is said."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from opcheck.derivatives import projected
from opcheck.derivatives.comparison import agree, allowed, blocks, most, wrong_entries
from opcheck.derivatives.coordinates import located, place, split
from opcheck.derivatives.diagnosis import diagnose, worst_entries
from opcheck.derivatives.differences import Differences, error_estimate, kinks
from opcheck.derivatives.directions import probe
from opcheck.derivatives.engine import Disagreement, Request
from opcheck.derivatives.evidence import Analytical, Evidence, Mode
from opcheck.derivatives.functions import Primal
from opcheck.derivatives.mismatch import Mismatch, find_mismatch

ACCURATE = 1e-8
"""By how much finite differences in double precision are off at most, usually."""


def contradiction(evidence: Evidence, mode: Mode, request: Request, name: str = "") -> Disagreement | None:
    """Return where the Jacobian by one of the modes contradicts the numerical one; None where it does not."""
    numbers = request.numbers
    analytical = evidence.analytical(mode)
    numerical = evidence.numerical(numbers.eps)
    if evidence.projections is not None:
        return projected.contradiction(evidence, mode, numbers)
    leaves, atol, rtol = evidence.leaves, numbers.atol, numbers.rtol
    close = most(analytical.jacobian, numerical.jacobian) <= min(ACCURATE, atol)
    if close and numerical.most_bend <= atol and analytical.holds(1e4 * evidence.unit):
        return None  # as almost always
    right = close or agree(analytical.jacobian, numerical.jacobian, leaves, rtol, atol)
    if right and analytical.holds(1e4 * evidence.unit):
        bound = allowed(numerical.jacobian, leaves, numbers)
        bent = numerical.bend.abs() > bound
        smooth = not bool(bent.any()) or not bool(kinks(numerical, evidence.numerical(2 * numbers.eps), bound).any())
        if smooth and _inaccurate(analytical.jacobian, numerical, evidence) is None:
            return None
    return confirmed(evidence, mode, request, name)


def _inaccurate(
    analytical: Tensor, numerical: Differences, evidence: Evidence, *, looped: bool = False
) -> Disagreement | None:  # fmt: skip
    """Return that a right Jacobian has lost digits, where the finite differences can tell; None where it has not.

    Their own error is estimated from a second step; it is of the size of 1e-10 in double precision, four digits less
    than single precision somewhere inside a formula leaves.
    """
    if agree(analytical, numerical.jacobian, (), ACCURATE, ACCURATE) or evidence.unit > 1e-12:
        return None
    off = (analytical - numerical.jacobian).abs()
    error = float(error_estimate(numerical, evidence.numerical(2 * numerical.step, looped=looped)).max())
    scale = float(numerical.jacobian.abs().max())
    # The points themselves are rounded, which two steps may have in common.
    error += evidence.unit * float(evidence.point.abs().max()) / numerical.step * scale
    greatest = float(off.max())
    if not greatest > 20 * error + 1e-9 * scale:
        return None
    return Disagreement(
        f"low accuracy: a derivative is off by {greatest:.2g}, where finite differences can tell {error:.1g}: single "
        "precision, or a coarse approximation, somewhere in its formula",
        "low accuracy",
    )


def confirmed(evidence: Evidence, mode: Mode, request: Request, name: str = "") -> Disagreement | None:
    """Look again, one point and one direction at a time, before anything is reported."""
    numbers, leaves = request.numbers, evidence.leaves
    analytical = evidence.analytical(mode, looped=True)
    numerical = evidence.numerical(numbers.eps, looped=True)
    bound = allowed(numerical.jacobian, leaves, numbers)
    wrong = wrong_entries(analytical.jacobian, numerical.jacobian, leaves, numbers, bound)
    kinky = torch.zeros_like(wrong)
    if bool((wrong | (numerical.bend.abs() > bound)).any()):
        kinky = kinks(numerical, evidence.numerical(2 * numbers.eps, looped=True), bound)
    if bool(kinky.any()) and not bool((wrong & ~kinky).any()):
        mismatch = _mismatch(evidence, analytical, numerical, request) if bool(wrong.any()) else None
        return Disagreement(at_kink(kinky, evidence), "inconclusive", mismatch)
    if bool(wrong.any()):
        return _diagnosed(evidence, analytical, numerical, request, name)
    found = _not_linear(analytical, numerical.jacobian, evidence, mode, request)
    return found or _inaccurate(analytical.jacobian, numerical, evidence, looped=True)


def _not_linear(
    analytical: Analytical, numerical: Tensor, evidence: Evidence, mode: Mode, request: Request
) -> Disagreement | None:
    """The Jacobian is right for each unit direction. Return why it is not for a sum of them; None where it is."""
    direction = probe(evidence.size[0 if mode == "reverse" else 1])
    off = (analytical.said - analytical.ordinary).abs()
    magnitudes = numerical.abs().T if mode == "reverse" else numerical.abs()
    bound = request.numbers.atol * direction.abs().sum() + request.numbers.rtol * (magnitudes @ direction.abs())
    if bool((off <= bound).all()):
        return None
    what = "backward pass is not linear in the cotangent" if mode == "reverse" else "jvp is not linear in the tangent"
    return Disagreement(f"the {what}: right for each unit vector, off by up to {float(off.max()):.4g} for a random one")


def _diagnosed(
    evidence: Evidence, analytical: Analytical, numerical: Differences, request: Request, name: str
) -> Disagreement:  # fmt: skip
    both = numerical.jacobian, analytical.jacobian, evidence.outputs, evidence.leaves, request.numbers
    names = _names(evidence, request)
    found = Disagreement(
        "the Jacobians differ, or are not numbers", "wrong", _mismatch(evidence, analytical, numerical, request),
        tuple(diagnose(*both, order=name, names=names)), tuple(worst_entries(*both, names=names)),
    )  # fmt: skip
    return replace(found, text=found.shown())


def _mismatch(
    evidence: Evidence, analytical: Analytical, numerical: Differences, request: Request
) -> Mismatch | None:  # fmt: skip
    outputs = evidence.outputs
    n, a = (blocks(matrix, outputs, evidence.leaves) for matrix in (numerical.jacobian, analytical.jacobian))
    return find_mismatch(n, a, outputs, evidence.leaves, request.numbers, _names(evidence, request))


def _names(evidence: Evidence, request: Request) -> tuple[str, ...]:
    """Return the names of the outputs; the gradients that a pullback returns have none."""
    function = evidence.function
    if not request.names or not isinstance(function, Primal):
        return ()
    return tuple(request.names[index] for index in function.chosen)


def at_kink(kinky: Tensor, evidence: Evidence) -> str:
    """Return where one-sided differences disagree: the inputs to move, with their values."""
    columns = kinky.any(dim=0).nonzero().flatten().tolist()
    places = []
    for column in columns[:8]:
        leaf, own = located(column, evidence.leaves)
        places.append(f"input {leaf}{place(*split(own, evidence.leaves[leaf]))} = {float(evidence.point[column]):.8g}")
    more = f" and {len(columns) - 8} more" if len(columns) > 8 else ""
    return (
        "the function has a kink or a jump here, and no derivative: one-sided differences disagree\n"
        f"move the sample away from {', '.join(places)}{more}"
    )
