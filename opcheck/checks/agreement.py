"""Whether values agree, by `torch.testing.assert_close`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, fails
from opcheck.derivatives.mismatch import called


def agree(
    subject: Subject,
    got: Sequence[Tensor],
    expected: Sequence[Tensor],
    whose: str,
    *,
    names: Sequence[str] = (),
    check_dtype: bool = True,
) -> Verdict:
    """Compare outputs one by one. `whose`: what the outputs should be, as in "output 0 is not that of the loop".

    names: of the outputs, as in `.loss`; empty: they have positions.
    The tolerance is the default of assert_close for the dtype, unless the spec names one for this very check.
    """
    check = subject.context.case.check
    if len(got) != len(expected):
        return fails(f"{check}: {len(got)} outputs, not {len(expected)} as those of {whose}")
    tolerance = subject.context.value_tolerance()
    for index, (g, e) in enumerate(zip(got, expected, strict=True)):
        if _identical(g, e):
            continue  # as most often; assert_close takes 100 microseconds, and imports half of torch.distributed
        try:
            torch.testing.assert_close(
                g, e, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True, check_dtype=check_dtype
            )
        except AssertionError as error:
            output = called(index, names[index] if names else "")
            return fails(f"{check}: {output} is not that of {whose}", str(error))
    return HOLDS


def _identical(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors are the same to the last bit. NaN is not."""
    if not (one.layout is other.layout is torch.strided):
        return False
    return one.dtype == other.dtype and one.device == other.device and torch.equal(one, other)
