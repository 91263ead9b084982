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
        if _identical(g, e):
            continue  # the usual case: assert_close takes 100 microseconds, and imports torch.distributed
        try:
            torch.testing.assert_close(
                g, e, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True, check_dtype=check_dtype
            )
        except AssertionError as error:
            output = called(index, names[index] if names else "")
            return fails(f"{check}: {output} is not that of {whose}", str(error))
    return HOLDS


def _identical(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors are equal. NaN is not equal to itself."""
    if not (one.layout is other.layout is torch.strided):
        return False
    return one.dtype == other.dtype and one.device == other.device and torch.equal(one, other)
