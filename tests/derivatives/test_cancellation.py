"""Where large terms cancel, two ways to the same derivative differ by rounding: no way is held against the other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import opcheck
from opcheck.derivatives.gradients import is_cancellation


class Evidence:
    unit = 2.0**-53


EXPECTED = torch.tensor([3.0, -8.0, 0.5], dtype=torch.float64)


@pytest.mark.parametrize(
    ("off", "noise", "rounding"),
    [
        (1e-8, 1e-9, True),
        (1e-8, 1e-11, False),  # by far more than the two ways differ
        (1e-8, 0.0, False),
        (1e-5, 1e-3, False),  # by more than half of the digits
        (0.0, 0.0, True),
        (float("nan"), 1e-3, False),
        (1e-8, float("nan"), False),
    ],
)
def test_is_told_by_how_much_two_ways_differ(off: float, noise: float, rounding: bool) -> None:
    found, otherwise = EXPECTED + off, EXPECTED - noise
    assert is_cancellation(found, EXPECTED, otherwise, Evidence()) is rounding  # type: ignore[arg-type]


class Cancelling(torch.autograd.Function):
    """x and 2 x. Backward adds a large term and takes it away again, in an order that depends on what it is given."""

    @staticmethod
    def forward(ctx, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[no-untyped-def, override]
        ctx.set_materialize_grads(False)
        ctx.large = 1e8 * (x.detach() + 1 / 3)
        return x.clone(), 2 * x

    @staticmethod
    def backward(ctx, v: Tensor | None, w: Tensor | None) -> Tensor:  # type: ignore[no-untyped-def, override]
        large = ctx.large * (1 if v is not None and w is not None else 3)
        parts = [scale * given for scale, given in ((1, v), (2, w)) if given is not None]
        return sum((large + part - large for part in parts), torch.zeros_like(large))


class Doubling(Cancelling):
    """Wrong by a part in a million where a cotangent is undefined."""

    @staticmethod
    def backward(ctx, v: Tensor | None, w: Tensor | None) -> Tensor:  # type: ignore[no-untyped-def, override]
        found = Cancelling.backward(ctx, v, w)
        return found if v is not None and w is not None else found * (1 + 1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_undefined_cotangents_may_lose_the_same_digits(dtype: torch.dtype) -> None:
    x = torch.tensor([0.3, -1.7, 2.9], dtype=dtype, requires_grad=True)
    assert opcheck.gradcheck(Cancelling.apply, x, nondet_tol=1e-6)
    with pytest.raises(opcheck.GradcheckError, match=r"undefined|one backward pass for all outputs"):
        opcheck.gradcheck(Doubling.apply, x, nondet_tol=1e-6)
