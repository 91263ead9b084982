"""A Jacobian by automatic differentiation and the numerical one, compared entry by entry.

With fewer directions than inputs, the entries of its products with the directions are compared. `uncertainty.py`
has the rule when a difference makes an entry wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Mode
from opcheck.derivatives.coordinates import largest_difference, modulus, same
from opcheck.derivatives.cotangents import directions
from opcheck.derivatives.differences import Differences
from opcheck.derivatives.point import Point
from opcheck.derivatives.refusals import tried
from opcheck.derivatives.tolerances import BY_PRECISION, Numbers
from opcheck.derivatives.uncertainty import (
    ACCURATE,
    CERTAIN,
    EXPLAINED,
    FAR,
    FULL,
    NEAR,
    ROUNDED,
    allowed,
    beyond_bound,
    error_estimate,
    excess,
    kinks,
    largest,
    noise,
)

UNIT_OF_DOUBLE, UNIT_OF_SINGLE = torch.finfo(torch.float64).eps, torch.finfo(torch.float32).eps
"""The machine epsilon of double and of single precision, see `Point.unit`."""
FEW_BITS, SEVERAL = {torch.bfloat16: 6, torch.float16: 6, torch.float32: 12}, 3
"""A function computes in a coarser dtype if its values are all numbers of it, and at least `SEVERAL` of them have more
than this many bits."""
NEARBY = (0.7, 1.3, 1.9)
"""Multiples of the step, one for each nearby point, at which numerical noise is measured."""
FINER = (1, 1 / 8)
"""Multiples of the step at which differences are extrapolated where truncation may explain a difference."""
UNIT_OF_HALF = torch.finfo(torch.bfloat16).eps
"""The machine epsilon of the coarsest dtype that a function may round to."""
MUCH_FINER = 1 / 64
"""The multiple of the step at which fourth differences of a smooth function are smaller by far."""
BY_CHANCE = 3
"""The allowed error of an entry, as a multiple of the largest variation of any entry between nearby points: among
thousands of entries, some vary little by chance."""
CLOSE = 0.01
"""The share of rtol that is allowed for a product with a random direction: a sum of many entries must agree more
closely than a single entry."""


class Comparison:
    """A Jacobian by a mode and the numerical one, along the directions of a point.

    Both are computed when it is made. Passes on the exceptions of the function and its derivatives.
    """

    def __init__(self, point: Point, mode: Mode, numbers: Numbers) -> None:
        self.point, self.mode, self.numbers = point, mode, numbers
        self.derivative = point.analytical(mode)
        """The products with the directions by automatic differentiation."""
        self.directions = point.directions
        """The directions of both Jacobians."""
        self.slopes = point.numerical(numbers.eps)
        """The products with the directions by finite differences."""

    @property
    def is_projected(self) -> bool:
        """Whether each compared entry is a sum of many entries of the Jacobian."""
        return self.directions.extent == "projected"

    @cached_property
    def analytical(self) -> Tensor:
        """The matrix to compare, by automatic differentiation."""
        return self.directions.shown(self.derivative.jacobian, self.mode)

    def at(self, step: float) -> Differences:
        """Return the differences at a step, in the form of the matrix to compare."""
        return self.directions.measured(self.point.numerical(step), self.mode)

    @cached_property
    def fine(self) -> Differences:
        """The differences at the step of the settings, in the form of the matrix to compare."""
        return self.directions.measured(self.slopes, self.mode)

    @property
    def numerical(self) -> Tensor:
        """The matrix to compare, by differences."""
        return self.fine.jacobian

    @property
    def difference(self) -> Tensor:
        """The analytical matrix minus the numerical one."""
        return self.analytical - self.numerical

    @cached_property
    def largest(self) -> float:
        """The largest finite modulus of a numerical entry."""
        return largest(self.numerical)

    @cached_property
    def off(self) -> float:
        """The largest absolute difference of the two matrices; NaN if either contains NaN."""
        return largest_difference(self.analytical, self.numerical)

    @property
    def has_all_digits(self) -> bool:
        """Whether the Jacobians agree, and differ by no more than rounding explains: no digits are lost (fast path)."""
        # The factor 2 also covers moduli of complex entries, which are at most sqrt(2) times as large.
        return self.agrees and 2 * self.off <= CERTAIN * self.point.unit / self.numbers.eps

    @property
    def agrees(self) -> bool:
        """Whether the Jacobians agree within the error of finite differences, without a kink (fast path)."""
        atol, unit = self.numbers.atol, self.point.unit
        least = min(ACCURATE, atol, self._least)
        off = self.off
        if not off <= least and off <= atol:  # allow for rounding, which is larger in a sum of many numbers
            rounding = self.fine.rounding(unit)
            off = float(self.difference.abs_().sub_(rounding, alpha=CERTAIN).max())
        return off <= least and self.derivative.holds(self.point.rounding) and self.slopes.most_bend <= atol

    @property
    def holds_closely(self) -> bool:
        """Whether the matrices agree far more closely than the tolerance for entries requires, without a kink."""
        least = min(ACCURATE, self.numbers.atol)
        if not self.off <= least:
            allowed = least + CLOSE * self.numbers.rtol * self.numerical.abs()
            if not bool((self.difference.abs() <= allowed).all()):
                return False
        return self.slopes.most_bend <= self.numbers.atol or not self.has_kink  # a kink bends by more than atol

    @property
    def is_far_off(self) -> bool:
        """Whether the matrices differ by more than twice the tolerance.

        False at a kink, or if the numerical matrix is not finite.
        """
        expected = self.numerical
        far = self.difference.abs() > 2 * self.tolerance(self.numerical)
        far |= self.analytical.isfinite() != expected.isfinite()
        return bool(far.any()) and bool(expected.isfinite().all()) and not self.has_kink

    @property
    def is_settled(self) -> bool:
        """Whether differences are conclusive: they agree at twice the step, and rounding does not explain `difference`.

        Values so large that the step is less than their rounding unit do not change at either step. Then the
        differences agree, but rounding explains `difference`. Numerical noise must not explain it either.
        """
        coarse = self.point.numerical(2 * self.numbers.eps).jacobian
        agree = bool(((coarse - self.slopes.jacobian).abs() <= 0.5 * self._tolerance_of_slopes).all())
        if not agree or self.has_kink:
            return False
        off = self.difference.abs()
        excused = off <= self.fine.rounding(self.point.unit)
        if bool(excused.all()):
            return False
        return not bool((off <= self._noise).all())

    @property
    def coarse_dtype(self) -> str:
        """The name of the dtype in which a function of double precision computes; empty if it seems to have none.

        That is a dtype of half precision if it has all values, and several need more than a few bits: others may be
        rounded on purpose, to multiples of 1/4, say. Or it is float32, see `is_of_float32`.
        """
        if self.point.unit > UNIT_OF_DOUBLE:
            return ""
        for dtype in (torch.bfloat16, torch.float16):
            if self._has_values_of(dtype):
                return str(dtype).removeprefix("torch.")
        return "float32" if self.is_of_float32 else ""

    @property
    def is_of_float32(self) -> bool:
        """Whether the function rounds to single precision, at least in part, and this explains `difference`.

        Its values then vary at random by about the same amount, whatever the step, or are all numbers of float32. Terms
        that cancel may be as large as the largest number among inputs and outputs.
        """
        if not self.difference.numel():
            return False
        largest = self._largest_number
        moves = self._noise_of_float32(largest)
        if not moves and self._has_values_of(torch.float32):  # steps so small that no value changes
            moves = UNIT_OF_SINGLE * largest
        if not moves:
            return False
        error = self.fine.error_by(torch.full_like(self.slopes.above, EXPLAINED * moves))
        if not bool((self.difference.abs() <= error).all()):
            return False
        again = self.point.looped_differences(self.directions.moved, self.numbers.eps)
        return torch.equal(again.above, self.slopes.above)  # otherwise the function is random

    @property
    def _largest_number(self) -> float:
        """The largest number among inputs and outputs, of which rounding is a part."""
        numbers = (self.slopes.above.nan_to_num(), self.point.coordinates)
        return max(float(own.abs().max()) for own in numbers)

    def _has_values_of(self, dtype: torch.dtype) -> bool:
        """Whether all values are numbers of a coarser dtype, and several have more bits than they would by chance."""
        values = torch.cat([self.slopes.above, self.slopes.below])
        long = torch.frexp(self.slopes.base).mantissa.mul(2 ** FEW_BITS[dtype]).frac() != 0
        return int(long.sum()) >= SEVERAL and torch.equal(values.to(dtype).to(torch.float64), values)

    def _noise_of_float32(self, largest: float) -> float:
        """Return by how much values vary at random, if they do so as if rounded to single precision; else 0.

        largest: the largest number that may be rounded.
        """
        least = ROUNDED * UNIT_OF_DOUBLE * largest
        one = tried(partial(self._at_steps, self.point.along_one))
        if isinstance(one, Exception) or not noise(one) > least:
            return 0.0  # fast path: no noise along a random direction
        values = tried(partial(self._at_steps, self.point))
        if isinstance(values, Exception):
            return 0.0
        moves, wider = noise(values), noise(values[1::2])
        return moves if least < moves <= CERTAIN * UNIT_OF_SINGLE * largest and wider <= 4 * moves else 0.0

    @property
    def is_too_coarse(self) -> bool:
        """Whether values are too coarse, or too large, to judge any wrong entry.

        Even at the largest step, the error of the differences exceeds the tolerance, and rounding explains the
        difference. At a larger step, the function is too curved.
        """
        unit, step = self.point.unit, self._far[-1]
        if not bool(self.wrong.any()):
            return False
        both = tried(lambda: (self.at(step), self.at(2 * step)))
        if isinstance(both, Exception):  # the function is not defined that far away
            return False
        slopes, coarser = both
        off, rounding = self.size(self.analytical - slopes.jacobian), self.size(slopes.rounding(unit))
        error = self.size(error_estimate(slopes, [coarser], unit))
        return bool(((error > self.tolerance(slopes.jacobian)) & (off <= CERTAIN * rounding))[self.wrong].all())

    @property
    def is_erratic(self) -> bool:
        """Whether values vary at random from point to point along a random direction, at much smaller steps as well.

        Singular vectors of a matrix without full rank do so. Rounding, even to half precision, does not explain it.
        """
        least, point = EXPLAINED * UNIT_OF_HALF * self._largest_number, self.point.along_one
        moves = tried(lambda: noise(self._at_steps(point)))
        if isinstance(moves, Exception) or not moves > least:
            return False  # fast path: no noise at the step itself
        finer = tried(lambda: noise(self._at_steps(point, MUCH_FINER)))
        if isinstance(finer, Exception):
            return False
        return finer > max(least, moves / CERTAIN) and moves > finer / CERTAIN

    def _at_steps(self, point: Point, part: float = 1.0) -> list[Differences]:
        """Return the differences at steps h, 2 h, ..., 10 h. Raises if the function is not defined that far away.

        part: h, as a part of the step of the comparison.
        """
        return [point.numerical(n * part * self.numbers.eps) for n in range(1, 11)]

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
        is_noise = (moves > self.tolerance(self.numerical)) & (largest <= CERTAIN * moves)
        return torch.where(is_noise, torch.inf, torch.maximum(CERTAIN * moves, BY_CHANCE * moves.max()))

    def _off_at(self, coordinates: Tensor, step: float) -> Tensor:
        """Return `difference` at another point and step. This comparison must be along one random direction."""
        point, numbers = self.point.moved_to(coordinates).along_one, replace(self.numbers, eps=step)
        return Comparison(point, self.mode, numbers).difference

    @property
    def has_kink(self) -> bool:
        """Whether the one-sided differences disagree, at a larger step too."""
        return bool(self.kinky.any())

    # wrong entries, in the shape of `numerical`

    def size(self, entries: Tensor) -> Tensor:
        """Return the moduli of entries."""
        return modulus(entries, self.directions.columns_of(self.mode))

    def tolerance(self, numerical: Tensor) -> Tensor:
        """Return by how much analytical entries may differ from numerical ones, which have the form of `numerical`."""
        columns, lengths = self.directions.columns_of(self.mode), self.directions.lengths(self.mode)
        return allowed(numerical, columns, self.numbers, lengths)

    @cached_property
    def excess(self) -> Tensor:
        """The amounts by which entries exceed their tolerance; 0 for those within it.

        An entry that is off by no more than rounding explains may be right, and the differences wrong. It passes if it
        is within the tolerance at a larger step at which differences are accurate enough. For example, values of 1e5
        are rounded to 1e-11: at a step of 1e-6, a derivative of zero looks like 1e-5.
        """
        unit = self.point.unit
        off, beyond = self.size(self.difference), self._excess_over(self.numerical)
        noisy = (beyond > 0) & (off <= CERTAIN * self.size(self.fine.rounding(unit)))
        for coarse, coarser in self._further(self.at) if bool(noisy.any()) else ():
            error = self.size(error_estimate(coarse, [coarser], unit))
            beyond[noisy & (error <= self.tolerance(coarse.jacobian)) & (self._excess_over(coarse.jacobian) == 0)] = 0.0
        if not bool(beyond.any()):
            return beyond
        # The truncation error of differences D is proportional to h^2: D(h) - D(2h) is three times that of D(h), and a
        # third of it added to D(h) removes the leading term of the error (Richardson). Near a pole, only smaller steps
        # show this.
        truncated = off <= self.size(self.numerical - self.at(2 * self.numbers.eps).jacobian)
        for step in FINER if bool((truncated & (beyond > 0)).any()) else ():
            one, two = (self.at(times * step * self.numbers.eps).jacobian for times in (1, 2))
            beyond[truncated & (self._excess_over(one + (one - two) / 3) == 0)] = 0.0
        return beyond

    def _excess_over(self, numerical: Tensor) -> Tensor:
        """Return by how much the differences from numerical entries exceed `tolerance`."""
        columns, lengths = self.directions.columns_of(self.mode), self.directions.lengths(self.mode)
        return excess(self.analytical, numerical, columns, self.numbers, lengths)

    def _further(self, at: Callable[[float], Differences]) -> Iterator[tuple[Differences, Differences]]:
        """Yield differences at larger steps, and at twice each step, as long as the function is defined there."""
        for step in self._far[1:]:
            pair = tried(lambda step=step: (at(step), at(2 * step)))  # type: ignore[misc]
            if isinstance(pair, Exception):
                return
            yield pair

    @property
    def _far(self) -> tuple[float, ...]:
        # Central differences are most accurate at a step of about the cube root of the unit of rounding.
        eps, accurate = self.numbers.eps, self.point.unit ** (1 / 3)
        return 2 * eps, 8 * eps, max(16 * eps, FAR, accurate)

    @property
    def _least(self) -> float:
        """The least error that counts below atol.

        Rounding errors of differences shrink as 1 / h: an error of atol at the smallest step shrinks to this at the
        largest.
        """
        return self.numbers.atol * self.numbers.eps / self._far[-1]

    @cached_property
    def wrong_below_atol(self) -> Tensor:
        """Which entries are wrong although `atol` admits them: off by more than rtol |n| and the error of differences.

        The default atol suits functions of order one. A larger atol was chosen for the function: all smaller errors
        pass.
        """
        unit = self.point.unit
        default = BY_PRECISION[torch.float64 if unit <= UNIT_OF_DOUBLE else torch.float32].atol
        if self.numbers.atol > default or bool(((self.excess > 0) & ~self.at_kink).any()):
            return torch.zeros_like(self.at_kink)  # else the comparison fails anyway, and further steps take many calls
        # A small sum of many entries is the difference of large numbers.
        size = torch.full_like(self.numerical, self.largest) if self.is_projected else self.size(self.numerical)
        admitted = size * self.numbers.rtol + ROUNDED * unit * self.largest + self._least
        return self._exceeds(admitted, self._far) & (self.excess == 0)

    def without_digits(self) -> tuple[Tensor, float] | None:
        """Return a mask of the entries that have lost digits, and the least error that counts; None if there are none.

        They are within the tolerance, but off by far more than the arithmetic of their dtype leaves.
        """
        eps, unit = self.numbers.eps, self.point.unit
        farthest = largest(self.point.coordinates)  # it is rounded, too, which other steps would not show
        relative = max(FULL, 1e3 * unit, self.numbers.accuracy)
        grid = CERTAIN * unit / eps
        least = relative * self.largest + grid * max(1.0, farthest)
        admitted = self.size(self.numerical) * grid * farthest + least
        if not bool((self.size(self.difference) > admitted).any()):
            return None  # no other step is needed
        # Rounding inside a function may by chance be equal at all steps for one entry, but hardly for all entries.
        noise = CERTAIN * largest(self.numerical - self.at(2 * eps).jacobian)
        lost = self._exceeds(admitted + noise, [multiple * eps for multiple in NEAR])
        return (lost, least + noise) if bool(lost.any()) else None

    def _exceeds(self, admitted: Tensor, steps: Sequence[float]) -> Tensor:
        """Return a mask of entries that are off by more than is admitted plus `CERTAIN` times the numerical error.

        steps: larger steps, from which the error is estimated. Entries are left out if they are NaN, numerically
        infinite, or at a kink. If the function raises at one of the steps, all entries are left out.
        """
        off, unit = self.size(self.difference), self.point.unit
        mask, coarser = off > admitted + CERTAIN * self.fine.rounding(unit), list[Differences]()
        for step in steps:
            if not bool(mask.any()):
                return mask  # the first steps show the error of most entries
            slopes = tried(partial(self.at, step))
            if isinstance(slopes, Exception):  # the function is not defined as far from the point as that
                return torch.zeros_like(mask)
            coarser.append(slopes)
            error = CERTAIN * self.size(error_estimate(self.fine, coarser, unit))
            mask &= off > admitted + error
        bent = self.size(kinks(self.fine, coarser[0], error).to(error.dtype)) > 0
        return mask & ~bent

    # no derivative, in the shape of `slopes`

    @cached_property
    def _tolerance_of_slopes(self) -> Tensor:
        return allowed(self.slopes.jacobian, self.directions.columns_of("forward"), self.numbers)

    @cached_property
    def kinky(self) -> Tensor:
        """Where the function has a kink or a jump, as a mask.

        Where one-sided differences disagree by no more than rounding explains, a larger step must show the kink too.
        """
        at, eps, bound = self.point.numerical, self.numbers.eps, self._tolerance_of_slopes
        bent = self.slopes.bend.abs() > bound
        if not bool(bent.any()) and not bool(self.excess.any()):
            return bent
        mask = kinks(self.slopes, at(2 * eps), bound)
        if bool((bent & ~mask).any()):  # a kink at 2/3 of the step grows like a curve
            third = tried(partial(at, 3 * eps))
            if not isinstance(third, Exception):  # otherwise the function is not defined there
                mask |= kinks(self.slopes, third, bound)
        noisy = mask & self._bent_by_rounding(self.slopes)
        for coarse, coarser in self._further(at) if bool(noisy.any()) else ():
            mask &= ~noisy | kinks(coarse, coarser, bound)
            noisy &= mask & self._bent_by_rounding(coarse)
            if not bool(noisy.any()):
                break
        return mask

    def _bent_by_rounding(self, slopes: Differences) -> Tensor:
        bend = slopes.bend.abs()
        return (bend > self._tolerance_of_slopes) & (bend <= CERTAIN * slopes.rounding(self.point.unit))

    @cached_property
    def at_kink(self) -> Tensor:
        """Which compared entries a kink affects, as a mask of the shape of `numerical`.

        The two columns of an element of a complex leaf are judged by one modulus, so a kink in one affects both.
        """
        return self.size(self.directions.reached(self.kinky, self.mode).double()) > 0

    # in all

    @cached_property
    def wrong(self) -> Tensor:
        """Which entries are wrong."""
        return (self.excess > 0) | self.wrong_below_atol

    @property
    def beyond(self) -> Tensor:
        """The amounts by which wrong entries are off: `excess`, or the whole difference for `wrong_below_atol`."""
        return torch.where(self.wrong_below_atol, self.difference.abs(), self.excess)

    @property
    def below_atol(self) -> bool:
        """Whether no entry is off by more than the tolerance."""
        return not bool((self.wrong & ~self.wrong_below_atol).any())

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
        lengths = self.directions.of(self.mode).norm(dim=1) if self.is_projected else torch.ones_like(mix)
        bound = self.numbers.atol * float(mix @ lengths) + self.numbers.rtol * (mix @ rows.abs())
        return float(off.max()) if bool((beyond_bound(off, bound) > 0).any()) else 0.0
