"""A Jacobian by automatic differentiation and the numerical one, compared entry by entry.

With fewer directions than inputs, the entries of its products with the directions are compared. `uncertainty.py`
decides when a difference makes an entry wrong: see `Measured.excess`.
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
"""Multiples of the step, one for each nearby point, at which numerical noise is measured."""
BY_CHANCE = 3
"""The allowed error of an entry, as a multiple of the largest variation of any entry between nearby points: among
thousands of entries, some vary little by chance."""
CLOSE = 0.01
"""The share of rtol that is allowed for a product with a random direction: a sum of many entries must agree more
closely than a single entry."""


@dataclass(frozen=True)
class Comparison:
    """A Jacobian by a mode and the numerical one, along the directions of the point."""

    point: Point
    mode: Mode
    numbers: Numbers
    directions: Directions
    """The directions of both Jacobians."""
    derivative: Analytical
    """The products with the directions by automatic differentiation."""
    slopes: Differences
    """The products with the directions by finite differences."""

    @classmethod
    def of(cls, point: Point, mode: Mode, numbers: Numbers) -> Comparison:
        """Compute both Jacobians. Passes on the exceptions of the function and its derivatives."""
        derivative = point.analytical(mode)
        return cls(point, mode, numbers, point.directions, derivative, point.numerical(numbers.eps))

    @cached_property
    def analytical(self) -> Tensor:
        """The matrix to compare, by automatic differentiation."""
        return self.directions.shown(self.derivative.jacobian, self.mode)

    @cached_property
    def differences(self) -> Measured:
        """The differences along the directions, with their errors."""
        point = self.point
        return Measured(self.slopes, point.numerical, self.numbers, point.unit, self.directions.columns_of("forward"))

    @cached_property
    def numerical(self) -> Measured:
        """The matrix to compare, by differences, with its errors."""
        directions, mode, point = self.directions, self.mode, self.point

        @cache
        def at(step: float) -> Differences:
            return directions.measured(point.numerical(step), mode)

        return Measured(
            directions.measured(self.slopes, mode), at, self.numbers, point.unit, directions.columns_of(mode),
            partial(directions.lengths, mode), directions.sums,
        )  # fmt: skip

    @property
    def difference(self) -> Tensor:
        """The analytical matrix minus the numerical one."""
        return self.analytical - self.numerical.values

    @cached_property
    def off(self) -> float:
        """The largest absolute difference of the two matrices; NaN if either contains NaN."""
        return largest_difference(self.analytical, self.numerical.values)

    @property
    def has_all_digits(self) -> bool:
        """Whether the matrices differ by no more than rounding explains, so that no digits can be lost (fast path)."""
        # The factor 2 also covers moduli of complex entries, which are at most sqrt(2) times as large.
        return 2 * self.off <= CERTAIN * self.point.unit / self.numbers.eps

    @property
    def agrees(self) -> bool:
        """Whether the Jacobians agree within the error of finite differences, without a kink (fast path)."""
        atol, numerical = self.numbers.atol, self.numerical
        least = min(ACCURATE, atol, numerical.least)
        off = self.off
        if not off <= least and off <= atol:  # allow for rounding, which is larger in a sum of many numbers
            rounding = numerical.fine.rounding(self.point.unit)
            off = float(self.difference.abs_().sub_(rounding, alpha=CERTAIN).max())
        return off <= least and self.derivative.holds(self.point.rounding) and self.slopes.most_bend <= atol

    @property
    def holds_closely(self) -> bool:
        """Whether the matrices agree far more closely than the tolerance for entries requires, without a kink."""
        least = min(ACCURATE, self.numbers.atol)
        if self.off <= least and self.slopes.most_bend <= self.numbers.atol:
            return True  # fast path
        allowed = least + CLOSE * self.numbers.rtol * self.numerical.values.abs()
        return bool((self.difference.abs() <= allowed).all()) and not self.has_kink

    @property
    def is_far_off(self) -> bool:
        """Whether the matrices differ by more than twice the tolerance.

        False at a kink, or if the numerical matrix is not finite.
        """
        expected = self.numerical.values
        far = self.difference.abs() > 2 * self.numerical.tolerance()
        far |= self.analytical.isfinite() != expected.isfinite()
        return bool(far.any()) and bool(expected.isfinite().all()) and not self.has_kink

    @property
    def is_settled(self) -> bool:
        """Whether differences are conclusive: they agree at twice the step, and rounding does not explain `difference`.

        Values so large that the step is less than their rounding unit do not change at either step. Then the
        differences agree, but rounding explains `difference`. Numerical noise must not explain it either.
        """
        coarse = self.point.numerical(2 * self.numbers.eps).jacobian
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
        """Whether the function rounds to single precision, at least in part, and this explains `difference`.

        Its values then vary at random by about the same amount, whatever the step. Terms that cancel may be as large as
        the largest number among inputs and outputs.
        """
        double, single = (torch.finfo(dtype).eps for dtype in (torch.float64, torch.float32))
        if self.point.unit > double or not self.difference.numel():
            return False
        numbers = (self.slopes.above.nan_to_num(), self.point.coordinates)
        largest = max(float(own.abs().max()) for own in numbers)
        least = ROUNDED * double * largest
        one = tried(partial(self._at_steps, self.point.along_one))
        if isinstance(one, Exception) or not noise(one) > least:
            return False  # fast path: no noise along a random direction
        values = tried(partial(self._at_steps, self.point))
        if isinstance(values, Exception):
            return False
        moves, wider = noise(values), noise(values[1::2])
        if not least < moves <= CERTAIN * single * largest or wider > 4 * moves:
            return False
        error = self.numerical.fine.error_by(torch.full_like(self.slopes.above, EXPLAINED * moves))
        if not bool((self.difference.abs() <= error).all()):
            return False
        again = self.point.looped_differences(self.directions.moved, self.numbers.eps)
        return torch.equal(again.above, self.slopes.above)  # otherwise the function is random

    def _at_steps(self, point: Point) -> list[Differences]:
        """Return the differences at steps h, 2 h, ..., 10 h. Raises if the function is not defined that far away."""
        return [point.numerical(n * self.numbers.eps) for n in range(1, 11)]

    @property
    def _noise(self) -> Tensor:
        """The difference that numerical noise explains, from how much it varies between points less than a step away.

        Between eigenvalues that are equal up to rounding, or behind a matrix that is singular up to rounding, this
        arithmetic yields no derivative. The result is infinite for an entry that varies by about its own size: at the
        point itself it may be larger, such as 1 / 1e-15. It is 0 if the difference cannot be reproduced at the point
        itself, or if the function is not defined at nearby points.
        """
        own, eps = self.difference, self.numbers.eps
        if not same(self._off_at(self.point.coordinates, eps), own, 1e-6, 1e-6):
            return torch.zeros_like(own)
        nearby = []
        for move, multiple in zip(directions(self.point.size[1], len(NEARBY), "nearby"), NEARBY, strict=True):
            off = tried(partial(self._off_at, self.point.coordinates + 0.5 * eps * move, multiple * eps))
            if not isinstance(off, Exception):  # otherwise the function is not defined there
                nearby.append(off)
        if not nearby:
            return torch.zeros_like(own)
        low, high = torch.stack(nearby).aminmax(dim=0)
        moves, largest = high - low, torch.maximum(low.abs(), high.abs())
        is_noise = (moves > self.numerical.tolerance()) & (largest <= CERTAIN * moves)
        return torch.where(is_noise, torch.inf, torch.maximum(CERTAIN * moves, BY_CHANCE * moves.max()))

    def _off_at(self, coordinates: Tensor, step: float) -> Tensor:
        """Return `difference` at another point and step. This comparison must be along one random direction."""
        point, numbers = self.point.moved_to(coordinates).along_one, replace(self.numbers, eps=step)
        return Comparison.of(point, self.mode, numbers).difference

    @property
    def has_kink(self) -> bool:
        """Whether the one-sided differences disagree, at a larger step too."""
        return bool(self.kinky.any())

    # wrong entries, in the shape of `numerical`

    @cached_property
    def excess(self) -> Tensor:
        """The amounts by which entries exceed their tolerance; 0 for those within it."""
        return self.numerical.excess(self.analytical)

    @cached_property
    def kinky(self) -> Tensor:
        """Where the function has a kink, as a mask of the shape of `differences`."""
        kinky = self.differences.fine.bend.abs() > self.differences.tolerance()
        return self.differences.kinks() if bool(kinky.any()) or bool(self.excess.any()) else kinky

    @cached_property
    def at_kink(self) -> Tensor:
        """Which compared entries a kink affects, as a mask of the shape of `numerical`."""
        return self.directions.reached(self.kinky, self.mode)

    @cached_property
    def small(self) -> Tensor:
        """Which entries are wrong although `atol` admits them."""
        if bool(((self.excess > 0) & ~self.at_kink).any()):
            return torch.zeros_like(self.at_kink)  # the comparison fails anyway, and further steps take many calls
        return self.numerical.wrong_below_atol(self.analytical) & (self.excess == 0)

    @cached_property
    def wrong(self) -> Tensor:
        """Which entries are wrong."""
        return (self.excess > 0) | self.small

    @property
    def beyond(self) -> Tensor:
        """The amounts by which wrong entries are off: `excess`, or the whole difference for `small` ones."""
        return torch.where(self.small, self.difference.abs(), self.excess)

    @property
    def below_atol(self) -> bool:
        """Whether no entry is off by more than the tolerance."""
        return not bool((self.wrong & ~self.small).any())

    @property
    def differs(self) -> bool:
        """Whether an entry is wrong, or the function has a kink."""
        return bool(self.wrong.any()) or self.has_kink

    @cached_property
    def nonlinear(self) -> float:
        """The difference of the derivative along a sum of directions and the sum of derivatives; 0 if it is linear."""
        derivative = self.derivative
        if derivative.holds(self.point.rounding):
            return 0.0
        off = (derivative.predicted - derivative.ordinary).abs()
        rows = derivative.jacobian if self.mode == "reverse" else derivative.jacobian.T
        mix = self.directions.mix(len(rows)).abs()
        lengths = self.directions.of(self.mode).norm(dim=1) if self.directions.sums else torch.ones_like(mix)
        bound = self.numbers.atol * float(mix @ lengths) + self.numbers.rtol * (mix @ rows.abs())
        return float(off.max()) if bool((beyond_bound(off, bound) > 0).any()) else 0.0
