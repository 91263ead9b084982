"""Compares a Jacobian by automatic differentiation with the numerical one; single calls confirm what differs.

There is one comparison, entry by entry of what the directions show: see `directions.py`. What an entry that is off
means, the error of the numerical one decides: see `uncertainty.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, partial
from math import inf

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Mode, Primal
from opcheck.derivatives.coordinates import index_text, largest_difference, located, split
from opcheck.derivatives.differences import Differences
from opcheck.derivatives.directions import Directions, Random
from opcheck.derivatives.disagreement import Disagreement, Names, Pair
from opcheck.derivatives.point import Analytical, Point
from opcheck.derivatives.question import NO_REFUSAL, Numbers, Request
from opcheck.derivatives.uncertainty import ACCURATE, CERTAIN, Measured, beyond_bound
from opcheck.derivatives.wrong_entries import HOW, WrongEntries, entry_of, explain, not_linear

CLOSE = 0.01
"""The part of the tolerance that is left to a product with a random direction, which adds up what many entries say."""


@dataclass(frozen=True)
class Comparison:
    """A Jacobian by a mode beside the numerical one, in the directions of the point."""

    point: Point
    mode: Mode
    numbers: Numbers
    looped: bool
    """Whether each point and each direction takes a call of its own."""
    directions: Directions
    """The directions of both."""
    derivative: Analytical
    """What automatic differentiation gives for each direction."""
    slopes: Differences
    """What differences give."""

    @classmethod
    def of(cls, point: Point, mode: Mode, numbers: Numbers, looped: bool = False) -> Comparison:
        """Differentiate in both ways. Passes on the exceptions of the function and its derivatives."""
        derivative = point.analytical(mode, looped=looped)
        slopes = point.numerical(numbers.eps, looped=looped)
        return cls(point, mode, numbers, looped, point.directions, derivative, slopes)

    @cached_property
    def analytical(self) -> Tensor:
        """What is compared, by automatic differentiation."""
        return self.directions.shown(self.derivative.jacobian, self.mode)

    @cached_property
    def differences(self) -> Measured:
        """The differences along the directions."""
        at = partial(self.point.numerical, looped=self.looped)
        return Measured(self.slopes, at, self.numbers, self.point.unit, self.directions.columns_of(None))

    @cached_property
    def numerical(self) -> Measured:
        """What is compared, by differences."""
        directions, mode = self.directions, self.mode
        at = partial(self.point.numerical, looped=self.looped)
        return Measured(
            directions.measured(self.slopes, mode), cache(lambda step: directions.measured(at(step), mode)),
            self.numbers, self.point.unit,
            directions.columns_of(mode), partial(directions.lengths, mode), directions.sums,
        )  # fmt: skip

    @cached_property
    def off(self) -> float:
        """The largest difference of both; NaN if either has one."""
        return largest_difference(self.analytical, self.numerical.values)

    @property
    def has_all_digits(self) -> bool:
        """Whether both differ by no more than rounding explains, as almost always: no digits can be lost."""
        # Moduli, which are at most sqrt(2) times as large, are admitted too.
        return 2 * self.off <= CERTAIN * self.point.unit / self.numbers.eps

    @property
    def agrees(self) -> bool:
        """Whether there is nothing to look at more closely, as almost always: both differ by what differences must."""
        atol, numerical = self.numbers.atol, self.numerical
        least = min(ACCURATE, atol, numerical.least)
        off = self.off
        if not off <= least and off <= atol:  # a sum of many numbers has more rounding
            rounding = numerical.fine.rounding(self.point.unit)
            off = float((self.analytical - numerical.values).abs_().sub_(rounding, alpha=CERTAIN).max())
        return off <= least and self.derivative.holds(1e4 * self.point.unit) and self.slopes.most_bend <= atol

    @property
    def holds_closely(self) -> bool:
        """Whether both are far closer than the tolerance for entries allows, and the function has no kink."""
        least = min(ACCURATE, self.numbers.atol)
        if self.off <= least and self.slopes.most_bend <= self.numbers.atol:
            return True  # as almost always
        analytical, expected = self.analytical, self.numerical.values
        allowed = least + CLOSE * self.numbers.rtol * expected.abs()
        return bool(((analytical - expected).abs() <= allowed).all()) and not self._has_kink

    @property
    def is_far_off(self) -> bool:
        """Whether both differ by more than twice the tolerance, and the function has no kink."""
        expected = self.numerical.values
        far = (self.analytical - expected).abs() > 2 * self.numerical.tolerance()
        far |= self.analytical.isfinite() != expected.isfinite()
        return bool(far.any()) and bool(expected.isfinite().all()) and not self._has_kink

    @property
    def is_settled(self) -> bool:
        """Whether differences at twice the step agree: else rounding or a bend may be what differs."""
        coarse = self.point.numerical(2 * self.numbers.eps, looped=self.looped).jacobian
        off = (coarse - self.slopes.jacobian).abs()
        return bool((off <= 0.5 * self.differences.tolerance()).all()) and not self._has_kink

    @property
    def _has_kink(self) -> bool:
        """Whether the one-sided differences disagree, and do so at a larger step."""
        bend = self.differences.fine.bend.abs()
        return not bool((bend <= self.differences.tolerance()).all()) and bool(self.differences.kinks().any())

    def wrong_entries(self) -> WrongEntries:
        """Return which entries are wrong, and where the function has a kink."""
        numerical, differences = self.numerical, self.differences
        beyond = numerical.excess(self.analytical)
        wrong = beyond > 0
        kinky = differences.fine.bend.abs() > differences.tolerance()
        if bool(kinky.any()) or bool(wrong.any()):
            kinky = differences.kinks()
        at_kink = self.directions.reached(kinky, self.mode) if bool(kinky.any()) else torch.zeros_like(wrong)
        small = torch.zeros_like(wrong)
        if not bool((wrong & ~at_kink).any()):  # else it is wrong anyway, and further steps take many calls
            small = numerical.wrong_below_atol(self.analytical) & ~wrong
        beyond = torch.where(small, (self.analytical - numerical.values).abs(), beyond)
        return WrongEntries(
            self.point, self.mode, self.numbers, self.analytical, numerical.values, beyond, wrong | small, small,
            kinky, at_kink, self._off_for_a_sum(),
        )  # fmt: skip

    def _off_for_a_sum(self) -> float:
        """Return by how much the derivative for a sum of directions is not the sum of those for each; 0 if it is."""
        derivative, mix = self.derivative, self.directions.mix(self.mode).abs()
        if derivative.holds(1e4 * self.point.unit):
            return 0.0
        off = (derivative.predicted - derivative.ordinary).abs()
        rows = derivative.jacobian if self.mode == "reverse" else derivative.jacobian.T
        lengths = self.directions.of(self.mode).norm(dim=1) if self.directions.sums else torch.ones_like(mix)
        bound = self.numbers.atol * float(mix @ lengths) + self.numbers.rtol * (mix @ rows.abs())
        within = self.looped and not bool((beyond_bound(off, bound) > 0).any())
        return 0.0 if within else float(off.max())


def contradiction(point: Point, mode: Mode, request: Request) -> Disagreement | None:
    """Return where the Jacobian by a mode contradicts the numerical one, or None if it does not."""
    numbers = request.numbers
    first = Comparison.of(point, mode, numbers)
    if first.agrees:
        return _by_reference(point, mode, request)
    if request.expected and point.extent == "full":
        disagreement = _worst_confirmed(first, request)
        if disagreement is not None:
            return disagreement
    entries = first.wrong_entries()
    if entries.any:  # what the batch objects to is confirmed one by one
        entries = Comparison.of(point, mode, numbers, looped=True).wrong_entries()
    if not entries.any:
        return _by_reference(point, mode, request)
    if bool(entries.wrong.any()) or bool(entries.kinky.any()):
        disagreement = explain(entries, request)
        if disagreement is None:  # no entry is at fault: the function is not independent along the axes that were found
            point.turn_to(Random(point.size, point.coverage.projections))
            return contradiction(point, mode, request)
        return disagreement
    return not_linear(point, mode, f"off by up to {entries.nonlinear:.4g} for a sum of them")


def _worst_confirmed(comparison: Comparison, request: Request) -> Disagreement | None:
    """Return that the Jacobians differ, if ordinary calls confirm the worst entry; None if they do not, or at a kink.

    For a disagreement that is expected: what it looks like, nobody asks.
    """
    point, mode, numbers = comparison.point, comparison.mode, comparison.numbers
    numerical, analytical = comparison.numerical.values, comparison.analytical
    beyond = comparison.numerical.excess(analytical)
    row, column = divmod(int(beyond.argmax()), max(1, point.size[1]))
    if not bool(beyond.any()):
        return None
    slopes, entry = entry_of(point, mode, row, column, numbers.eps)
    right, bend = slopes.jacobian[row, 0], slopes.bend[row, 0]
    bound = numbers.atol + numbers.rtol * right.abs()
    if not abs(entry - right) > 2 * bound or bool(bend.abs() > bound):
        return None
    pair = Pair(numerical, analytical, beyond, point.outputs, point.leaves, Names.of(point.function, request))
    return Disagreement("the Jacobians differ", "wrong", pair.mismatch(), (), tuple(pair.worst()))


def along_one(point: Point, mode: Mode, numbers: Numbers) -> Comparison:
    """Return J u by forward mode, or v^T J u by reverse mode, beside the numerical one for random u and v.

    They take a few ordinary calls, where the whole Jacobian takes a batch of them.
    """
    return Comparison.of(point.along_one, mode, numbers, looped=True)


def lost_digits(point: Point, mode: Mode, request: Request) -> Disagreement | None:
    """Return that a Jacobian within the tolerance has lost digits, if differences can tell; else None."""
    for looped in (False, True):  # what the batch objects to is confirmed one by one
        comparison = Comparison.of(point, mode, request.numbers, looped)
        if comparison.has_all_digits:
            return None
        farthest = float(point.coordinates.abs().max()) if point.size[1] else 0.0
        numerical, analytical = comparison.numerical, comparison.analytical
        without = numerical.without_digits(analytical, farthest)
        if without is None:
            return None
        lost, least = without
    off = (analytical - numerical.values).abs() * lost
    row, column = divmod(int(off.argmax()), off.shape[1])
    worst = float(off[row, column])
    share, where, pair = worst / numerical.largest if numerical.largest else inf, "", None
    if point.extent == "full":
        names = Names.of(point.function, request)
        pair = Pair(numerical.values, analytical, off, point.outputs, point.leaves, names)
        where = f"\n{pair.entry(row, column).describe()}"
    return Disagreement(
        f"low accuracy: off by {worst:.2g}, {share:.1g} of the largest entry; differences show errors "
        f"from {least:.1g} on{where}\nthat looks like single precision, or a coarse approximation, in its formula",
        "low accuracy",
        pair=pair,
    )


def _by_reference(point: Point, mode: Mode, request: Request) -> Disagreement | None:
    """Given products V J U that agree, return where V J is not that of the differentiable reference, or None.

    A wrong entry changes one of N numbers there, and is not hidden in a sum over both sides. There is none for
    derivatives of higher order, and none that is another function at this point.
    """
    function, numbers = point.function, request.numbers
    if (
        request.reference is None
        or mode == "forward"
        or point.extent != "projected"
        or not isinstance(function, Primal)
    ):
        return None
    try:
        other = Point(Primal(request.reference, function.chosen), point.leaves)
        differentiable = all(output.requires_grad for output in other.outputs)
        if not differentiable or not torch.allclose(other.value, point.value, 1e-6, 1e-6, equal_nan=True):
            return None
        right = other.products(mode, point.directions.of(mode))
    except NO_REFUSAL:
        raise
    except Exception:  # it does not take such arguments, or is not differentiable after all
        return None
    bound = numbers.atol * point.directions.of(mode).norm(dim=1).unsqueeze(1) + numbers.rtol * right.abs()
    for looped in (False, True):
        products = point.analytical(mode, looped=looped).jacobian
        wrong = beyond_bound((products - right).abs(), bound) > 0
        if not bool(wrong.any()):
            return None
    row, column = divmod(int((products - right).abs().nan_to_num(nan=inf).argmax()), right.shape[1])
    index, own = located(column, point.leaves)
    place = Names.of(function, request).leaves[index] + index_text(*split(own, point.leaves[index]))
    return Disagreement(
        f"v J at {place} is {float(right[row, column]):.8g} by the reference, {float(products[row, column]):.8g} "
        f"analytically, for random direction {row}\n{int(wrong.any(dim=0).sum())} of {wrong.shape[1]} entries of such "
        f"products differ\n{HOW}"
    )
