"""How accurate a numerical derivative is, and so when an analytical one is wrong or lacks digits.

A number by differences comes with an error E: the rounding of the values that were subtracted, and truncation, which
shows between steps. An analytical entry that is off by d, where the tolerance allows t, is

    wrong             if d > t, but in two cases: rounding alone explains d, and at a larger step, where E <= t, d <= t;
                      or truncation explains d, and beside what two steps extrapolate to, d <= t;
    wrong below atol  if d is small, but more than rtol |n| and 20 E;
    without digits    if d <= t, but far more than the arithmetic of its dtype and 20 E leave.

Where one-sided differences disagree at every step, the function has a kink, and there is no derivative to compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from opcheck.derivatives.coordinates import modulus
from opcheck.derivatives.differences import Differences
from opcheck.derivatives.request import tried
from opcheck.derivatives.tolerances import BY_PRECISION, Numbers

EXPLAINED = 5
"""How many times the noise of values, divided by the step, a derivative may be off by."""
CERTAIN = 20
"""How many times its error a number must be off by to be taken for another one."""
ACCURATE = 1e-8
"""The usual error of finite differences in double precision, at most."""
NEAR = (2, 8, 32)
"""Multiples of the step that show how accurate differences are."""
FAR = 1e-3
"""A step that is large enough to change a function whose intermediate values are so large that smaller steps are lost
when these are rounded."""
ROUNDED = 1e4
"""How many units of rounding a derivative may be off by, relative to the largest one."""
FULL = 1e-9
"""The largest relative error of a derivative in full double precision. Single precision leaves one of 6e-8."""


def allowed(numerical: Tensor, leaves: Sequence[Tensor], numbers: Numbers, lengths: Tensor | float = 1.0) -> Tensor:
    """Return atol + rtol |n| for each entry of a numerical Jacobian of shape (M, N).

    lengths: what atol is multiplied by.
    """
    return modulus(numerical, leaves).mul(numbers.rtol).add_(numbers.atol * lengths)


def excess(
    analytical: Tensor, numerical: Tensor, leaves: Sequence[Tensor], numbers: Numbers, lengths: Tensor | float = 1.0
) -> Tensor:
    """Return by how much |a - n| exceeds its tolerance, for each entry of two Jacobians of shape (M, N).

    It is zero for entries within the tolerance. It is infinite if either entry is NaN, and for an infinity that is not
    the same on both sides. Of a complex leaf |.| is the modulus over the columns of both parts, as in torch.
    """
    beyond = beyond_bound(modulus(analytical - numerical, leaves), allowed(numerical, leaves, numbers, lengths))
    return beyond.masked_fill_(analytical == numerical, 0.0)


def beyond_bound(difference: Tensor, bound: Tensor) -> Tensor:
    """Return by how much differences exceed a bound. An infinite bound allows no difference that is not finite."""
    return (difference - bound).clamp_min_(0.0).masked_fill_(~difference.isfinite(), float("inf"))


def excuse_wrong_sign(numerical: Tensor, numbers: Numbers) -> bool:
    """Tell whether a Jacobian that is not zero would pass with all of its entries negated."""
    size = numerical.abs()
    return bool(size.any()) and bool((2 * size <= numbers.atol + numbers.rtol * size).all())


def kinks(fine: Differences, coarse: Differences, allowed: Tensor) -> Tensor:
    """Return where the function has a kink or a jump, as a mask of shape (M, K), from differences at two steps.

    Where the function is smooth, both one-sided differences change with the step h. A kink or a jump at the point, or
    within a step of it, leaves those on one side as they are. A smooth function may have one flat side, too. How the
    disagreement of both sides depends on the step tells these apart: it is proportional to 1 / h at a jump, grows more
    slowly than h behind a kink, and is proportional to h for a curve.
    """
    bend, ratio = fine.bend, coarse.step / fine.step
    right, left = (fine.right - coarse.right).abs(), (fine.left - coarse.left).abs()
    small = 0.2 * bend.abs()
    one_sided = (bend.abs() > allowed) & (torch.minimum(right, left) <= small)
    growth = coarse.bend / bend
    is_kink = (torch.maximum(right, left) <= small) | ((growth >= 0.8) & ((growth - ratio).abs() > 0.1 * ratio))
    is_jump = (growth * ratio - 1).abs() <= 0.2
    # In the middle of a jump both sides grow as 1/h, and do not differ.
    sides = ((fine.right, coarse.right), (fine.left, coarse.left))
    first, second = ((one - ratio * other).abs() <= 0.2 * one.abs() for one, other in sides)
    return (one_sided & (is_kink | is_jump)) | (first & second & (fine.jacobian.abs() > allowed))


def error_estimate(fine: Differences, coarser: Iterable[Differences], unit: float) -> Tensor:
    """Return an estimate of the error of the finest central differences, of shape (M, K).

    Their truncation error is proportional to h^2 and that at c h is c^2 times as large, so that the two differ by at
    least the error of the finer one for c^2 >= 2. What arithmetic inside f adds shrinks as 1/c, and shows as a
    difference too. The rounding of f itself to `unit` is added.
    """
    rounding = fine.rounding(unit)
    error = rounding
    for coarse in coarser:
        error = torch.maximum(error, rounding + (fine.jacobian - coarse.jacobian).abs())
    return error


def noise(slopes: Sequence[Differences]) -> float:
    """Return by how much values move at random from point to point, from differences at h, 2 h, ..., 5 h or more.

    Fourth differences of a smooth function shrink as h^4. Those of independent errors do not depend on h, and have 70
    times their variance (R. W. Hamming, 1971; J. J. Moré and S. M. Wild, Estimating Computational Noise, 2011). They
    are taken on each side of the point, so that a kink or a jump there is none; of both sides the smaller one counts.
    """
    weights = torch.tensor([1.0, -4.0, 6.0, -4.0, 1.0], dtype=torch.float64) / 70**0.5
    sides = (torch.stack([one.above for one in slopes]), torch.stack([one.below for one in slopes]))
    above, below = ((side.unfold(0, 5, 1) @ weights).abs().nan_to_num().amax(0) for side in sides)
    return float(torch.minimum(above, below).max())


@dataclass(frozen=True)
class Measured:
    """A numerical Jacobian, or its products with directions, whose entries come with their errors."""

    fine: Differences
    """The differences at the step of the settings."""
    at: Callable[[float], Differences]
    """Those at other steps."""
    numbers: Numbers
    unit: float
    """The rounding unit of the function's arithmetic."""
    leaves: Sequence[Tensor]
    """What the columns are of: the two of a complex element have one modulus. Empty: each column is on its own."""
    lengths: Callable[[], Tensor | float] = lambda: 1.0
    """What atol is multiplied by: the lengths of the directions of an entry. Hardly ever called."""
    sums: bool = False
    """Whether an entry is a sum of many: a small one is then the difference of large numbers."""

    @property
    def values(self) -> Tensor:
        """The derivatives themselves."""
        return self.fine.jacobian

    @cached_property
    def largest(self) -> float:
        """The largest finite modulus of an entry."""
        return largest(self.values)

    def size(self, entries: Tensor) -> Tensor:
        """Return the moduli of entries."""
        return modulus(entries, self.leaves)

    def tolerance(self, of: Differences | None = None) -> Tensor:
        """Return what an analytical entry may be off by."""
        return allowed((of or self.fine).jacobian, self.leaves, self.numbers, self.lengths())

    # wrong

    def excess(self, analytical: Tensor) -> Tensor:
        """Return by how much analytical entries are beyond the tolerance: 0 for those within it.

        Rounding makes differences as wrong as an entry that is off by no more than it explains. Such an entry holds if
        it is within the tolerance at a larger step, where differences are certain to be. Values of 1e5 are rounded to
        1e-11: at a step of 1e-6, a derivative of zero looks like 1e-5.
        """
        off, beyond = self.size(analytical - self.values), self._beyond(analytical, self.values)
        noisy = (beyond > 0) & (off <= CERTAIN * self.size(self.fine.rounding(self.unit)))
        for coarse, coarser in self._further() if bool(noisy.any()) else ():
            error = self.size(error_estimate(coarse, [coarser], self.unit))
            certain = error <= self.tolerance(coarse)
            beyond[noisy & certain & (self._beyond(analytical, coarse.jacobian) == 0)] = 0.0
        return self._unless_truncated(beyond, analytical, off) if bool(beyond.any()) else beyond

    def _unless_truncated(self, beyond: Tensor, analytical: Tensor, off: Tensor) -> Tensor:
        """Return the excess, 0 for entries that truncation explains and that hold beside a number without it.

        The truncation of differences D is proportional to h^2: D(h) - D(2h) is three times that of D(h), and a third of
        it added to D(h) takes away its first term (Richardson).
        """
        change = self.values - self.at(2 * self.numbers.eps).jacobian
        truncated = (off <= self.size(change)) & (self._beyond(analytical, self.values + change / 3) == 0)
        return beyond.masked_fill(truncated, 0.0)

    def _beyond(self, analytical: Tensor, numerical: Tensor) -> Tensor:
        return excess(analytical, numerical, self.leaves, self.numbers, self.lengths())

    def _further(self) -> Iterator[tuple[Differences, Differences]]:
        """Yield the differences at larger steps, and at twice each, as long as the function is defined there."""
        for step in self._far[1:]:
            pair = tried(partial(self._pair, step))
            if isinstance(pair, Exception):
                return
            yield pair

    def _pair(self, step: float) -> tuple[Differences, Differences]:
        return self.at(step), self.at(2 * step)

    @property
    def _far(self) -> tuple[float, ...]:
        eps = self.numbers.eps
        return 2 * eps, 8 * eps, max(16 * eps, FAR)

    # wrong below atol

    @property
    def least(self) -> float:
        """The least error that counts below atol.

        Rounding errors of differences shrink as 1 / h: one of atol at the smallest step becomes this at the largest.
        """
        return self.numbers.atol * self.numbers.eps / self._far[-1]

    def wrong_below_atol(self, analytical: Tensor) -> Tensor:
        """Return the entries that are off by more than rtol |n| and than differences can be, however small, as a mask.

        A tolerance fits functions of order one. An atol above the default was chosen for the function: it excuses all
        that is below.
        """
        default = BY_PRECISION[torch.float64 if self.unit < 1e-12 else torch.float32].atol
        if self.numbers.atol > default:
            return torch.zeros_like(analytical, dtype=torch.bool)
        size = torch.full_like(analytical, self.largest) if self.sums else self.size(self.values)
        return self._exceeds(
            analytical, size * self.numbers.rtol + ROUNDED * self.unit * self.largest + self.least, self._far
        )

    # without digits

    def without_digits(self, analytical: Tensor, farthest: float) -> tuple[Tensor, float] | None:
        """Return the entries that have lost digits, as a mask, and the least error that counts; None if there are none.

        farthest: the largest coordinate of the point, which is rounded too. No other step would show that.
        """
        eps = self.numbers.eps
        relative = max(FULL, 1e3 * self.unit, self.numbers.accuracy)
        grid = CERTAIN * self.unit / eps
        least = relative * self.largest + grid * max(1.0, farthest)
        admitted = self.size(self.values) * grid * farthest + least
        if not bool((self.size(analytical - self.values) > admitted).any()):
            return None  # no other step is needed
        # Rounding inside a function may happen to be the same at all steps for one entry, but hardly for all of them.
        noise = CERTAIN * largest(self.values - self.at(2 * eps).jacobian)
        lost = self._exceeds(analytical, admitted + noise, [multiple * eps for multiple in NEAR])
        return (lost, least + noise) if bool(lost.any()) else None

    def _exceeds(self, analytical: Tensor, admitted: Tensor, steps: Sequence[float]) -> Tensor:
        """Return the entries that are off by more than is admitted and `CERTAIN` times the error of the differences.

        steps: larger ones, which show the error. Entries that are not finite, or that have a kink, are left out, and so
        is everything if the function raises at one of the steps.
        """
        off = self.size(analytical - self.values)
        mask = off > admitted + CERTAIN * self.fine.rounding(self.unit)
        if not bool(mask.any()):
            return mask  # as almost always
        coarser = tried(lambda: [self.at(step) for step in steps])
        if isinstance(coarser, Exception):  # the function is not defined as far from the point as that
            return torch.zeros_like(mask)
        error = CERTAIN * self.size(error_estimate(self.fine, coarser, self.unit))
        bent = self.size(kinks(self.fine, coarser[0], error).to(error.dtype)) > 0
        return mask & (off > admitted + error) & ~bent

    # no derivative

    def kinks(self) -> Tensor:
        """Return where the function has a kink or a jump, as a mask.

        Where one-sided differences disagree by no more than rounding explains, a larger step must show the kink too.
        """
        bound = self.tolerance()
        mask = kinks(self.fine, self.at(2 * self.numbers.eps), bound)
        if bool(((self.fine.bend.abs() > bound) & ~mask).any()):  # at 2/3 of the step, a kink grows as a curve does
            third = tried(partial(self.at, 3 * self.numbers.eps))
            if not isinstance(third, Exception):  # else the function is not defined there
                mask |= kinks(self.fine, third, bound)
        noisy = mask & self._bent_by_rounding(self.fine, bound)
        for coarse, coarser in self._further() if bool(noisy.any()) else ():
            mask &= ~noisy | kinks(coarse, coarser, bound)
            noisy &= mask & self._bent_by_rounding(coarse, bound)
            if not bool(noisy.any()):
                break
        return mask

    def _bent_by_rounding(self, slopes: Differences, bound: Tensor) -> Tensor:
        bend = slopes.bend.abs()
        return (bend > bound) & (bend <= CERTAIN * slopes.rounding(self.unit))


def largest(entries: Tensor) -> float:
    """Return the largest finite modulus; 0 if there is none."""
    return float(entries.abs().nan_to_num(0.0, 0.0, 0.0).max()) if entries.numel() else 0.0
