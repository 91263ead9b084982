"""Compares values with `torch.testing.assert_close`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.verdict import HOLDS, Verdict, fails
from opcheck.derivatives.disagreement import called


def agree(
    subject: Subject,
    got: Sequence[Tensor],
    expected: Sequence[Tensor],
    whose: str,
    *,
    names: Sequence[str] = (),
    check_dtype: bool = True,
) -> Verdict:
    """Compare outputs one by one.

    The tolerance is the default of assert_close for the dtype, unless the spec sets one for this check.

    whose: where the expected values come from, as in "output 0 is not that of the loop".
    names: the names of the outputs, as in `.loss`; empty if they have positions instead.
    """
    check = subject.check
    if len(got) != len(expected):
        return fails(f"{check}: {len(got)} outputs, not {len(expected)} as those of {whose}")
    tolerance = subject.context.value_tolerance()
    for index, (g, e) in enumerate(zip(got, expected, strict=True)):
        if _are_near(g, e, 0.0 if tolerance.atol is not None else NARROWEST):
            continue  # the usual case: assert_close takes 100 microseconds, and imports torch.distributed
        try:
            torch.testing.assert_close(
                g, e, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True, check_dtype=check_dtype
            )
        except AssertionError as error:
            output = called(index, names[index] if names else "")
            return fails(f"{check}: {output} is not that of {whose}", str(error))
    return HOLDS


NARROWEST = 1e-7
"""No default tolerance of assert_close for floating dtypes is narrower."""


def _are_near(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Tell whether two tensors agree so far that assert_close agrees, too."""
    if not (one.layout is other.layout is torch.strided and one.shape == other.shape):
        return False
    if one.dtype != other.dtype or one.device != other.device:
        return False
    is_double = one.dtype in (torch.float64, torch.complex128)
    return torch.equal(one, other) or (is_double and torch.allclose(one, other, tolerance, tolerance, equal_nan=True))
