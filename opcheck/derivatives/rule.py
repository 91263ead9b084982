"""The rule that an analytical entry and a numerical one are compared by, and words that all comparisons share."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from opcheck.derivatives.autodiff import Mode
from opcheck.derivatives.coordinates import index_text, located, modulus, split
from opcheck.derivatives.question import Numbers

ACCURATE = 1e-8
"""The usual error of finite differences in double precision, at most."""
KINK = "the function has a kink or a jump {}: one-sided differences disagree"
NOT_LINEAR: dict[Mode, str] = {
    "reverse": "backward pass is not linear in the cotangent",
    "forward": "jvp is not linear in the tangent",
}


def allowed(numerical: Tensor, leaves: Sequence[Tensor], numbers: Numbers) -> Tensor:
    """Return atol + rtol |n| for each entry of a numerical Jacobian of shape (M, N)."""
    return modulus(numerical, leaves).mul(numbers.rtol).add_(numbers.atol)


def excess(analytical: Tensor, numerical: Tensor, leaves: Sequence[Tensor], numbers: Numbers) -> Tensor:
    """Return by how much |a - n| exceeds its tolerance, for each entry of two Jacobians of shape (M, N).

    It is zero for entries within the tolerance. It is infinite if either entry is NaN, and for an infinity that is not
    the same on both sides.
    """
    beyond = beyond_bound(modulus(analytical - numerical, leaves), allowed(numerical, leaves, numbers))
    return beyond.masked_fill_(analytical == numerical, 0.0)


def excuses_wrong_sign(numerical: Tensor, numbers: Numbers) -> bool:
    """Tell whether a Jacobian that is not zero would pass with all of its entries negated."""
    size = numerical.abs()
    return bool(size.any()) and bool((2 * size <= numbers.atol + numbers.rtol * size).all())


def beyond_bound(difference: Tensor, bound: Tensor) -> Tensor:
    """Return by how much differences exceed a bound. An infinite bound allows no difference that is not finite."""
    return (difference - bound).clamp_min_(0.0).masked_fill_(~difference.isfinite(), float("inf"))


def at_kink(columns: Sequence[int], point: Tensor, leaves: Sequence[Tensor], names: Sequence[str]) -> str:
    """Say where one-sided differences disagree: which inputs to move, and their values."""
    places = []
    for column in columns[:8]:
        leaf, own = located(column, leaves)
        place = index_text(*split(own, leaves[leaf]))
        places.append(f"{names[leaf]}{place} = {float(point[column]):.8g}")
    more = f" and {len(columns) - 8} more" if len(columns) > 8 else ""
    return KINK.format("here, and no derivative") + f"\nmove the sample away from {', '.join(places)}{more}"
