"""Compares a Jacobian by automatic differentiation with the numerical one. Ordinary calls confirm differences."""

from __future__ import annotations

from math import inf

import torch

from opcheck.derivatives.autodiff import Function, Mode, Primal
from opcheck.derivatives.comparison import Comparison
from opcheck.derivatives.coordinates import labels
from opcheck.derivatives.directions import Random
from opcheck.derivatives.disagreement import Disagreement
from opcheck.derivatives.point import Point
from opcheck.derivatives.refusals import tried
from opcheck.derivatives.tolerances import Numbers
from opcheck.derivatives.uncertainty import beyond_bound
from opcheck.derivatives.wrong_entries import HOW, entry_of, explain, not_linear, pair_of


def compare(point: Point, mode: Mode, numbers: Numbers, *, expected: bool = False) -> Disagreement | None:
    """Return where the Jacobian by a mode differs from the numerical one, or None if they agree.

    expected: whether a disagreement is expected, so that confirming its worst entry is enough.
    """
    both = Comparison(point, mode, numbers)
    if both.agrees:
        return None
    if expected and point.directions.extent == "full":
        disagreement = _worst_confirmed(both)
        if disagreement is not None:
            return disagreement
    if not (both.differs or both.nonlinear):
        return None
    looped = point.without_batches()
    if looped is not point:  # confirm the failure of the batch by ordinary calls
        disagreement = compare(looped, mode, numbers, expected=expected)
        if looped.directions is not point.directions:
            point.turn_to(looped.directions)
        return disagreement
    if not both.differs:
        return not_linear(point, mode, f"off by up to {both.nonlinear:.4g} for a sum of them")
    disagreement = explain(both)
    if disagreement is None:  # no entry is wrong: the function is not independent along the axes
        point.turn_to(Random(point.size, point.coverage.projections))
        return compare(point, mode, numbers, expected=expected)
    return disagreement


def _worst_confirmed(comparison: Comparison) -> Disagreement | None:
    """Return that the Jacobians differ, if ordinary calls confirm the worst entry; None if they do not, or at a kink.

    Used for expected failures, which need no diagnosis.
    """
    point, mode, numbers = comparison.point, comparison.mode, comparison.numbers
    if not bool(comparison.excess.any()):
        return None
    row, column = divmod(int(comparison.excess.argmax()), point.size[1])
    slopes, entry = entry_of(point, mode, row, column, numbers.eps)
    right, bend = slopes.jacobian[row, 0], slopes.bend[row, 0]
    bound = numbers.atol + numbers.rtol * right.abs()
    if not abs(entry - right) > 2 * bound or bool(bend.abs() > bound):
        return None
    pair = pair_of(comparison, comparison.excess)
    return Disagreement.of_entries(pair.mismatch(), pair.worst())


def digits_lost(point: Point, mode: Mode, numbers: Numbers) -> Disagreement | None:
    """Return that a Jacobian within the tolerance has lost digits; None if not, or if differences are inconclusive."""
    comparison = Comparison(point, mode, numbers)
    if comparison.has_all_digits:
        return None
    without = comparison.without_digits()
    if without is None:
        return None
    looped = point.without_batches()
    if looped is not point:  # confirm the failure of the batch by ordinary calls
        return digits_lost(looped, mode, numbers)
    lost, least = without
    off = comparison.difference.abs() * lost
    row, column = divmod(int(off.argmax()), off.shape[1])
    worst = float(off[row, column])
    share, where, pair = worst / comparison.largest if comparison.largest else inf, "", None
    if point.directions.extent == "full":
        pair = pair_of(comparison, off)
        where = f"\n{pair.entry(row, column).describe()}"
    return Disagreement(
        f"low accuracy: off by {worst:.2g}, {share:.1g} of the largest entry; differences show errors "
        f"from {least:.1g} on{where}\nthat looks like single precision, or a coarse approximation, in its formula",
        "low accuracy",
        pair=pair,
    )


def unlike_reference(point: Point, reference: Function, numbers: Numbers) -> Disagreement | None:
    """Return where V J differs from that of a differentiable reference, or None.

    Called after the products V J U agree, in which a wrong entry may hide in a sum over both sides. Here, it changes
    one of N numbers. Jacobians that are not projected need no reference. Return None if the reference has other values
    at this point.
    """
    if point.directions.extent != "projected":
        return None
    function = point.function
    assert isinstance(function, Primal)
    cotangents = point.directions.of("reverse")
    other = Point(Primal(reference, function.chosen), point.leaves)
    right = tried(lambda: other.products("reverse", cotangents))
    if isinstance(right, Exception) or not all(output.requires_grad for output in other.outputs):
        return None  # the reference cannot be used
    if not torch.allclose(other.value, point.value, 1e-6, 1e-6, equal_nan=True):
        return None
    bound = numbers.atol * cotangents.norm(dim=1).unsqueeze(1) + numbers.rtol * right.abs()
    products = point.analytical("reverse").jacobian
    wrong = beyond_bound((products - right).abs(), bound) > 0
    if not bool(wrong.any()):
        return None
    looped = point.without_batches()
    if looped is not point:
        return unlike_reference(looped, reference, numbers)
    row, column = divmod(int((products - right).abs().nan_to_num(nan=inf).argmax()), right.shape[1])
    (place,) = labels([column], point.leaves, point.names.leaves)
    return Disagreement(
        f"v J at {place} is {float(right[row, column]):.8g} by the reference, {float(products[row, column]):.8g} "
        f"analytically, for random direction {row}\n{int(wrong.any(dim=0).sum())} of {wrong.shape[1]} entries of such "
        f"products differ\n{HOW}"
    )
