"""How accurate a numerical derivative is, and so when an analytical one is wrong or lacks digits.

A numerical entry has an error E: the rounding of the values that were subtracted, and truncation, which is estimated
from two steps. An analytical entry that is off by d, where the tolerance allows t, is

    wrong             if d > t, with two exceptions: rounding alone explains d, and d <= t at a larger step with E <= t;
                      or truncation explains d, and d <= t for the extrapolation from two steps, also smaller ones;
    wrong below atol  if d <= t, but d is more than rtol |n| and 20 E;
    without digits    if d <= t, but d is far more than the arithmetic of its dtype and 20 E leave.

Where one-sided differences disagree at every step, the function has a kink, and there is no derivative to compare.

This module has the formulas. `comparison.py` applies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from opcheck.derivatives.coordinates import modulus
from opcheck.derivatives.differences import Differences
from opcheck.derivatives.tolerances import Numbers

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


def passes_negated(numerical: Tensor, numbers: Numbers) -> bool:
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
    weights = torch.tensor([1.0, -4.0, 6.0, -4.0, 1.0], dtype=torch.float64, device="cpu") / 70**0.5
    sides = (torch.stack([one.above for one in slopes]), torch.stack([one.below for one in slopes]))
    above, below = ((side.unfold(0, 5, 1) @ weights).abs().nan_to_num().amax(0) for side in sides)
    return float(torch.minimum(above, below).max())


def largest(entries: Tensor) -> float:
    """Return the largest finite modulus of some entries; 0 if there is none."""
    return float(entries.abs().nan_to_num(0.0, 0.0, 0.0).max()) if entries.numel() else 0.0
