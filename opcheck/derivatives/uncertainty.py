"""How accurate a numerical derivative is, and so when an analytical one is wrong or lacks digits.

A numerical entry has an error E: the rounding of the values that were subtracted, and truncation, which is estimated
from two steps. An analytical entry that is off by d, where the tolerance allows t, is

    wrong             if d > t, with two exceptions: rounding alone explains d, and d <= t at a larger step with E <= t;
                      or truncation explains d, and d <= t for the extrapolation from two steps;
    wrong below atol  if d <= t, but d is more than rtol |n| and 20 E;
    without digits    if d <= t, but d is far more than the arithmetic of its dtype and 20 E leave.

Where one-sided differences disagree at every step, the function has a kink, and there is no derivative to compare.
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
"""The error of a derivative that noise explains, as a multiple of the noise of values divided by the step."""
CERTAIN = 20
"""A number is certainly another one if it is off by more than this many times its error."""
ACCURATE = 1e-8
"""An upper bound on the usual error of finite differences in double precision."""
NEAR = (2, 8, 32)
"""The multiples of the step that show how accurate differences are."""
FAR = 1e-3
"""A step that is large enough for functions whose intermediate values are so large that rounding them hides the effect
of smaller steps."""
ROUNDED = 1e4
"""The allowed error of a derivative in units of rounding, relative to the largest derivative."""
FULL = 1e-9
"""The largest relative error of a derivative in full double precision. In single precision it is 6e-8."""


def allowed(numerical: Tensor, leaves: Sequence[Tensor], numbers: Numbers, lengths: Tensor | float = 1.0) -> Tensor:
    """Return atol + rtol |n| for each entry of a numerical Jacobian of shape (M, N).

    lengths: the factors of atol.
    """
    return modulus(numerical, leaves).mul(numbers.rtol).add_(numbers.atol * lengths)


def excess(
    analytical: Tensor, numerical: Tensor, leaves: Sequence[Tensor], numbers: Numbers, lengths: Tensor | float = 1.0
) -> Tensor:
    """Return by how much |a - n| exceeds its tolerance, for each entry of two Jacobians of shape (M, N).

    The result is zero for entries within the tolerance. It is infinite if either entry is NaN, or if either is infinite
    and they are not equal. For a complex leaf |.| is the modulus over the columns of the real and the imaginary part,
    as in torch.
    """
    beyond = beyond_bound(modulus(analytical - numerical, leaves), allowed(numerical, leaves, numbers, lengths))
    return beyond.masked_fill_(analytical == numerical, 0.0)


def beyond_bound(difference: Tensor, bound: Tensor) -> Tensor:
    """Return by how much differences exceed a bound. The result is infinite for a difference that is not finite."""
    return (difference - bound).clamp_min_(0.0).masked_fill_(~difference.isfinite(), float("inf"))


def excuse_wrong_sign(numerical: Tensor, numbers: Numbers) -> bool:
    """Return whether a Jacobian that is not zero would pass with all of its entries negated."""
    size = numerical.abs()
    return bool(size.any()) and bool((2 * size <= numbers.atol + numbers.rtol * size).all())


def kinks(fine: Differences, coarse: Differences, allowed: Tensor) -> Tensor:
    """Return where the function has a kink or a jump, as a mask of shape (M, K), from differences at two steps.

    Where the function is smooth, both one-sided differences change with the step h. With a kink or a jump at the point,
    or within a step of it, the differences on one side do not change. But a smooth function may also be flat on one
    side. The difference of the two sides distinguishes these cases: it is proportional to 1 / h at a jump, grows more
    slowly than h behind a kink, and is proportional to h for a curve.
    """
    bend, ratio = fine.bend, coarse.step / fine.step
    right, left = (fine.right - coarse.right).abs(), (fine.left - coarse.left).abs()
    small = 0.2 * bend.abs()
    one_sided = (bend.abs() > allowed) & (torch.minimum(right, left) <= small)
    growth = coarse.bend / bend
    is_kink = (torch.maximum(right, left) <= small) | ((growth >= 0.8) & ((growth - ratio).abs() > 0.1 * ratio))
    is_jump = (growth * ratio - 1).abs() <= 0.2
    # In the middle of a jump, both one-sided differences grow as 1/h and are equal.
    sides = ((fine.right, coarse.right), (fine.left, coarse.left))
    first, second = ((one - ratio * other).abs() <= 0.2 * one.abs() for one, other in sides)
    return (one_sided & (is_kink | is_jump)) | (first & second & (fine.jacobian.abs() > allowed))


def error_estimate(fine: Differences, coarser: Iterable[Differences], unit: float) -> Tensor:
    """Return an estimate of the error of the finest central differences, of shape (M, K).

    Their truncation error is proportional to h^2. At a step c h it is c^2 times as large, so that for c^2 >= 2 the two
    differ by at least the error of the finer differences. Errors of the arithmetic inside f shrink as 1/c, and are part
    of this difference, too. The rounding of f itself to `unit` is added.
    """
    rounding = fine.rounding(unit)
    error = rounding
    for coarse in coarser:
        error = torch.maximum(error, rounding + (fine.jacobian - coarse.jacobian).abs())
    return error


def noise(slopes: Sequence[Differences]) -> float:
    """Return by how much values vary at random from point to point, from differences at h, 2 h, ..., 5 h or more.

    Fourth differences of a smooth function shrink as h^4. Those of independent errors do not depend on h, and have 70
    times their variance (R. W. Hamming, 1971; J. J. Moré and S. M. Wild, Estimating Computational Noise, 2011). They
    are taken on each side of the point, so that a kink or a jump at the point does not count as noise. The result is
    the smaller one of the two sides.
    """
    weights = torch.tensor([1.0, -4.0, 6.0, -4.0, 1.0], dtype=torch.float64) / 70**0.5
    sides = (torch.stack([one.above for one in slopes]), torch.stack([one.below for one in slopes]))
    above, below = ((side.unfold(0, 5, 1) @ weights).abs().nan_to_num().amax(0) for side in sides)
    return float(torch.minimum(above, below).max())


@dataclass(frozen=True)
class Measured:
    """A numerical Jacobian, or its products with directions, with the errors of the entries."""

    fine: Differences
    """The differences at the step of the settings."""
    at: Callable[[float], Differences]
    """The differences at another step."""
    numbers: Numbers
    unit: float
    """The unit of rounding of the function's arithmetic: its machine epsilon."""
    leaves: Sequence[Tensor]
    """The tensors that the columns belong to: the two columns of a complex element have one modulus. Empty: each column
    has its own."""
    lengths: Callable[[], Tensor | float] = lambda: 1.0
    """The factors of atol: the lengths of the directions of each entry. Computed on demand, since it is rarely
    needed."""
    sums: bool = False
    """Whether each entry is a sum of many, so that a small one is the difference of large numbers."""

    @property
    def values(self) -> Tensor:
        """The numerical derivatives."""
        return self.fine.jacobian

    @cached_property
    def largest(self) -> float:
        """The largest finite modulus of an entry."""
        return largest(self.values)

    def size(self, entries: Tensor) -> Tensor:
        """Return the moduli of entries."""
        return modulus(entries, self.leaves)

    def tolerance(self, of: Differences | None = None) -> Tensor:
        """Return the tolerance of each analytical entry."""
        return allowed((of or self.fine).jacobian, self.leaves, self.numbers, self.lengths())

    # wrong

    def excess(self, analytical: Tensor) -> Tensor:
        """Return by how much analytical entries are beyond the tolerance: 0 for those within it.

        An entry that is off by no more than rounding explains may be right, and the differences wrong. It passes if it
        is within the tolerance at a larger step at which differences are accurate enough. For example, values of 1e5
        are rounded to 1e-11: at a step of 1e-6, a derivative of zero looks like 1e-5.
        """
        off, beyond = self.size(analytical - self.values), self._beyond(analytical, self.values)
        noisy = (beyond > 0) & (off <= CERTAIN * self.size(self.fine.rounding(self.unit)))
        for coarse, coarser in self._further() if bool(noisy.any()) else ():
            error = self.size(error_estimate(coarse, [coarser], self.unit))
            certain = error <= self.tolerance(coarse)
            beyond[noisy & certain & (self._beyond(analytical, coarse.jacobian) == 0)] = 0.0
        return self._unless_truncated(beyond, analytical, off) if bool(beyond.any()) else beyond

    def _unless_truncated(self, beyond: Tensor, analytical: Tensor, off: Tensor) -> Tensor:
        """Return the excess, 0 for entries that truncation explains and that agree with an extrapolation.

        The truncation error of differences D is proportional to h^2: D(h) - D(2h) is three times that of D(h), and a
        third of it added to D(h) removes the leading term of the error (Richardson).
        """
        change = self.values - self.at(2 * self.numbers.eps).jacobian
        truncated = (off <= self.size(change)) & (self._beyond(analytical, self.values + change / 3) == 0)
        return beyond.masked_fill(truncated, 0.0)

    def _beyond(self, analytical: Tensor, numerical: Tensor) -> Tensor:
        return excess(analytical, numerical, self.leaves, self.numbers, self.lengths())

    def _further(self) -> Iterator[tuple[Differences, Differences]]:
        """Yield the differences at larger steps, and at twice each step, as long as the function is defined there."""
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

        Rounding errors of differences shrink as 1 / h: an error of atol at the smallest step shrinks to this at the
        largest.
        """
        return self.numbers.atol * self.numbers.eps / self._far[-1]

    def wrong_below_atol(self, analytical: Tensor) -> Tensor:
        """Return a mask of entries that are off by more than rtol |n| and than the error of differences, however small.

        The default atol suits functions of order one. A larger atol was chosen for the function: all smaller errors
        pass.
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
        """Return a mask of the entries that have lost digits, and the least error that counts; None if there are none.

        farthest: the largest coordinate of the point, which is rounded too. Other steps would not show that.
        """
        eps = self.numbers.eps
        relative = max(FULL, 1e3 * self.unit, self.numbers.accuracy)
        grid = CERTAIN * self.unit / eps
        least = relative * self.largest + grid * max(1.0, farthest)
        admitted = self.size(self.values) * grid * farthest + least
        if not bool((self.size(analytical - self.values) > admitted).any()):
            return None  # no other step is needed
        # Rounding inside a function may by chance be equal at all steps for one entry, but hardly for all entries.
        noise = CERTAIN * largest(self.values - self.at(2 * eps).jacobian)
        lost = self._exceeds(analytical, admitted + noise, [multiple * eps for multiple in NEAR])
        return (lost, least + noise) if bool(lost.any()) else None

    def _exceeds(self, analytical: Tensor, admitted: Tensor, steps: Sequence[float]) -> Tensor:
        """Return a mask of entries that are off by more than is admitted plus `CERTAIN` times the numerical error.

        steps: larger steps, from which the error is estimated. Entries are left out if they are NaN, numerically
        infinite, or at a kink. If the function raises at one of the steps, all entries are left out.
        """
        off = self.size(analytical - self.values)
        mask = off > admitted + CERTAIN * self.fine.rounding(self.unit)
        if not bool(mask.any()):
            return mask  # fast path
        coarser = tried(lambda: [self.at(step) for step in steps])
        if isinstance(coarser, Exception):  # the function is not defined as far from the point as that
            return torch.zeros_like(mask)
        error = CERTAIN * self.size(error_estimate(self.fine, coarser, self.unit))
        bent = self.size(kinks(self.fine, coarser[0], error).to(error.dtype)) > 0
        return mask & (off > admitted + error) & ~bent

    # no derivative

    def kinks(self) -> Tensor:
        """Return where the function has a kink or a jump, as a mask of shape (M, K).

        Where one-sided differences disagree by no more than rounding explains, a larger step must show the kink too.
        """
        bound = self.tolerance()
        mask = kinks(self.fine, self.at(2 * self.numbers.eps), bound)
        if bool(((self.fine.bend.abs() > bound) & ~mask).any()):  # a kink at 2/3 of the step grows like a curve
            third = tried(partial(self.at, 3 * self.numbers.eps))
            if not isinstance(third, Exception):  # otherwise the function is not defined there
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
    """Return the largest finite modulus of some entries; 0 if there is none."""
    return float(entries.abs().nan_to_num(0.0, 0.0, 0.0).max()) if entries.numel() else 0.0
