"""A Jacobian by automatic differentiation and the numerical one, compared entry by entry.

With fewer directions than inputs, the entries are those of products with the directions. When a difference makes an
entry wrong, `uncertainty.py` decides: see `Measured.excess`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Mode
from opcheck.derivatives.coordinates import largest_difference, same
from opcheck.derivatives.cotangents import directions
from opcheck.derivatives.differences import Differences
from opcheck.derivatives.directions import Directions
from opcheck.derivatives.point import Analytical, Point
from opcheck.derivatives.request import tried
from opcheck.derivatives.tolerances import Numbers
from opcheck.derivatives.uncertainty import ACCURATE, CERTAIN, EXPLAINED, ROUNDED, Measured, beyond_bound, noise

NEARBY = (0.7, 1.3, 1.9)
"""Multiples of the step, one for each point nearby, that show whether a derivative can be told."""
BY_CHANCE = 3
"""How many times the largest variation of any entry between points nearby an entry may be off by: among thousands of
entries, some vary little by chance."""
CLOSE = 0.01
"""The share of rtol that is allowed for a product with a random direction: a sum of many entries must agree more
closely than one."""


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
        return Measured(self.slopes, at, self.numbers, self.point.unit, self.directions.columns_of("forward"))

    @cached_property
    def numerical(self) -> Measured:
        """What is compared, by differences."""
        directions, mode = self.directions, self.mode
        at = self.differences.at
        return Measured(
            directions.measured(self.slopes, mode), cache(lambda step: directions.measured(at(step), mode)),
            self.numbers, self.point.unit,
            directions.columns_of(mode), partial(directions.lengths, mode), directions.sums,
        )  # fmt: skip

    @property
    def difference(self) -> Tensor:
        """What both differ by."""
        return self.analytical - self.numerical.values

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
            off = float(self.difference.abs_().sub_(rounding, alpha=CERTAIN).max())
        return off <= least and self.derivative.holds(self.point.rounding) and self.slopes.most_bend <= atol

    @property
    def holds_closely(self) -> bool:
        """Whether both are far closer than the tolerance for entries allows, and the function has no kink."""
        least = min(ACCURATE, self.numbers.atol)
        if self.off <= least and self.slopes.most_bend <= self.numbers.atol:
            return True  # as almost always
        allowed = least + CLOSE * self.numbers.rtol * self.numerical.values.abs()
        return bool((self.difference.abs() <= allowed).all()) and not self.has_kink

    @property
    def is_far_off(self) -> bool:
        """Whether both differ by more than twice the tolerance, and the function has no kink."""
        expected = self.numerical.values
        far = self.difference.abs() > 2 * self.numerical.tolerance()
        far |= self.analytical.isfinite() != expected.isfinite()
        return bool(far.any()) and bool(expected.isfinite().all()) and not self.has_kink

    @property
    def is_settled(self) -> bool:
        """Whether differences tell that both differ: they agree at twice the step, and rounding is no excuse.

        Values so large that the step is less than their rounding unit do not move, at either step.
        """
        coarse = self.point.numerical(2 * self.numbers.eps, looped=self.looped).jacobian
        agree = bool(((coarse - self.slopes.jacobian).abs() <= 0.5 * self.differences.tolerance()).all())
        if not agree or self.has_kink:
            return False
        off = self.difference.abs()
        excused = off <= self.numerical.fine.rounding(self.point.unit)
        if bool(excused.all()):
            return False
        return not bool((off <= self._noise).all())

    @property
    def is_of_float32(self) -> bool:
        """Whether the function rounds to single precision, in part at least, which explains what both differ by.

        Its values then move at random by about as much, whatever the step. Terms that cancel may be as large as the
        largest number that goes in or comes out.
        """
        double, single = (torch.finfo(dtype).eps for dtype in (torch.float64, torch.float32))
        if self.point.unit > double or not self.difference.numel():
            return False
        numbers = (self.slopes.above.nan_to_num(), self.point.coordinates)
        largest = max(float(own.abs().max()) for own in numbers)
        least = ROUNDED * double * largest
        one = tried(partial(self._at_steps, self.point.along_one, looped=True))
        if isinstance(one, Exception) or not noise(one) > least:
            return False  # as almost always: nothing moves along a random direction
        values = tried(partial(self._at_steps, self.point, looped=self.looped))
        if isinstance(values, Exception):
            return False
        moves, wider = noise(values), noise(values[1::2])
        if not least < moves <= CERTAIN * single * largest or wider > 4 * moves:
            return False
        error = self.numerical.fine.error_by(torch.full_like(self.slopes.above, EXPLAINED * moves))
        if not bool((self.difference.abs() <= error).all()):
            return False
        again = self.point.looped_differences(self.directions.moved, self.numbers.eps)
        return torch.equal(again.above, self.slopes.above)  # else it is random

    def _at_steps(self, point: Point, *, looped: bool) -> list[Differences]:
        """Return differences at steps h, 2 h, ..., 10 h. Raises where the function is not defined as far away."""
        return [point.numerical(n * self.numbers.eps, looped=looped) for n in range(1, 11)]

    @property
    def _noise(self) -> Tensor:
        """The difference that numerical noise explains, from how much it varies between points less than a step away.

        Between eigenvalues that are equal up to rounding, or behind a matrix that is singular up to rounding, there is
        no derivative to tell in this arithmetic. It is infinite where the difference varies by as much as its own size:
        at the point itself it may be larger, such as 1 / 1e-15. It is 0 if computing the difference again at the same
        point gives another one.
        """
        own, eps = self.difference, self.numbers.eps
        if not same(self._off_at(self.point.coordinates, eps), own, 1e-6, 1e-6):
            return torch.zeros_like(own)
        nearby = []
        for move, multiple in zip(directions(self.point.size[1], len(NEARBY), "nearby"), NEARBY, strict=True):
            off = tried(partial(self._off_at, self.point.coordinates + 0.5 * eps * move, multiple * eps))
            if not isinstance(off, Exception):  # else the function is not defined there
                nearby.append(off)
        if not nearby:
            return torch.zeros_like(own)
        low, high = torch.stack(nearby).aminmax(dim=0)
        moves, largest = high - low, torch.maximum(low.abs(), high.abs())
        is_noise = (moves > self.numerical.tolerance()) & (largest <= CERTAIN * moves)
        return torch.where(is_noise, torch.inf, torch.maximum(CERTAIN * moves, BY_CHANCE * moves.max()))

    def _off_at(self, coordinates: Tensor, step: float) -> Tensor:
        """Return by how much both differ along the same directions at another point, by differences at a step."""
        point, numbers = self.point.moved_to(coordinates).along_one, replace(self.numbers, eps=step)
        return Comparison.of(point, self.mode, numbers, self.looped).difference

    @property
    def has_kink(self) -> bool:
        """Whether the one-sided differences disagree, and do so at a larger step."""
        return bool(self.kinky.any())

    # which entries are wrong, as masks of the form of the comparison

    @cached_property
    def excess(self) -> Tensor:
        """By how much entries exceed their tolerance."""
        return self.numerical.excess(self.analytical)

    @cached_property
    def kinky(self) -> Tensor:
        """Where the function has a kink, as a mask of the form of the differences."""
        kinky = self.differences.fine.bend.abs() > self.differences.tolerance()
        return self.differences.kinks() if bool(kinky.any()) or bool(self.excess.any()) else kinky

    @cached_property
    def at_kink(self) -> Tensor:
        """The same in the form of the comparison."""
        return self.directions.reached(self.kinky, self.mode)

    @cached_property
    def small(self) -> Tensor:
        """The entries that are wrong although they are below `atol`."""
        if bool(((self.excess > 0) & ~self.at_kink).any()):
            return torch.zeros_like(self.at_kink)  # it is wrong anyway, and further steps take many calls
        return self.numerical.wrong_below_atol(self.analytical) & (self.excess == 0)

    @cached_property
    def wrong(self) -> Tensor:
        """The entries that are wrong."""
        return (self.excess > 0) | self.small

    @property
    def beyond(self) -> Tensor:
        """By how much the wrong entries are wrong."""
        return torch.where(self.small, self.difference.abs(), self.excess)

    @property
    def below_atol(self) -> bool:
        """Whether nothing is off by more than the tolerance."""
        return not bool((self.wrong & ~self.small).any())

    @property
    def differs(self) -> bool:
        """Whether an entry is wrong, or at a kink."""
        return bool(self.wrong.any()) or self.has_kink

    @cached_property
    def nonlinear(self) -> float:
        """By how much the derivative for a sum of directions is not the sum of those for each; 0 if it is."""
        derivative = self.derivative
        if derivative.holds(self.point.rounding):
            return 0.0
        off = (derivative.predicted - derivative.ordinary).abs()
        rows = derivative.jacobian if self.mode == "reverse" else derivative.jacobian.T
        mix = self.directions.mix(len(rows)).abs()
        lengths = self.directions.of(self.mode).norm(dim=1) if self.directions.sums else torch.ones_like(mix)
        bound = self.numbers.atol * float(mix @ lengths) + self.numbers.rtol * (mix @ rows.abs())
        within = self.looped and not bool((beyond_bound(off, bound) > 0).any())
        return 0.0 if within else float(off.max())
