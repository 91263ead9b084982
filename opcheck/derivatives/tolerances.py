"""The step of finite differences and the tolerances of derivatives, with their defaults for each dtype."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch


@dataclass(frozen=True)
class Numbers:
    """Step and tolerances. An analytical entry a passes if |a - n| <= atol + rtol |n| for the numerical entry n."""

    eps: float
    """The step of the central differences, in the units of the input."""
    atol: float
    rtol: float
    nondeterminism: float = 0.0
    """The largest difference allowed between two backward passes."""
    accuracy: float = 0.0
    """The largest error of a derivative, relative to its largest entry, that does not count as lost digits. Zero: the
    error that arithmetic in the dtype of the inputs leaves."""


DOUBLE = Numbers(eps=1e-6, atol=1e-5, rtol=1e-3)
"""The defaults of `torch.autograd.gradcheck`."""

BY_PRECISION = {
    torch.float64: DOUBLE,
    torch.complex128: DOUBLE,
    # Central differences are most accurate at a step of about the cube root of the rounding unit.
    torch.float32: Numbers(eps=5e-3, atol=1e-2, rtol=2e-2),
    torch.complex64: Numbers(eps=5e-3, atol=1e-2, rtol=2e-2),
}


COARSEST = 0.1
"""The largest tolerance at which derivatives of order one can still be distinguished."""


def default_numbers(dtype: torch.dtype, eps: float | None = None) -> Numbers | None:
    """Return the defaults for a dtype, or None if it is too coarse for finite differences (half precision).

    eps: a step chosen by the user. With one that is large enough, half precision has tolerances up to COARSEST.
    """
    if eps is None or dtype in BY_PRECISION or not (dtype.is_floating_point or dtype.is_complex):
        return BY_PRECISION.get(dtype)
    rounding = 4 * torch.finfo(dtype).eps / eps  # the rounding error of differences of values of order one
    return Numbers(eps, rounding, rounding) if rounding <= COARSEST else None


def too_coarse_in(dtype: torch.dtype) -> str:
    """Return the message that values of a dtype are too coarse for differences, with the smallest sufficient step."""
    step = 4 * torch.finfo(dtype).eps / COARSEST
    name = str(dtype).removeprefix("torch.")
    return (
        f"an input or output has dtype {name}, whose values are too coarse for finite differences unless the step is "
        f"at least {ceil(100 * step) / 100:g}: set tolerance.eps"
    )
