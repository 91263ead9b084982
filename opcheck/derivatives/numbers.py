"""Step sizes and tolerances of derivative comparisons."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Numbers:
    """What a comparison allows for: |a - n| <= atol + rtol |n| between an analytical and a numerical entry."""

    eps: float
    """Step of the central differences, in the units of the input."""
    atol: float
    rtol: float
    nondeterminism: float = 0.0
    """Greatest difference between two backward passes."""


DOUBLE = Numbers(eps=1e-6, atol=1e-5, rtol=1e-3)
"""The defaults of `torch.autograd.gradcheck`."""

BY_PRECISION = {
    torch.float64: DOUBLE,
    torch.complex128: DOUBLE,
    # Central differences are most accurate at a step of about the cube root of the rounding unit.
    torch.float32: Numbers(eps=5e-3, atol=1e-2, rtol=2e-2),
    torch.complex64: Numbers(eps=5e-3, atol=1e-2, rtol=2e-2),
}


def default_numbers(dtype: torch.dtype) -> Numbers | None:
    """Return the defaults for a dtype; None where finite differences in it say nothing (half precision)."""
    return BY_PRECISION.get(dtype)
