"""Where functions bend so much within a step that truncation exceeds the tolerance, further steps decide."""

import pytest
import torch
from operators.asking import Request, check_claim

from opcheck.derivatives import Coverage
from opcheck.derivatives.tolerances import DOUBLE

BOTH = pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=["real", "complex"])
WAYS = pytest.mark.parametrize("jacobian", ["full", "projected"])
FAST = 1e5
"""sin(w x) / w has differences that are off by (w h)^2 / 6 of its derivative: by 1.7e-3, where 1e-3 is allowed."""


class Waves(torch.autograd.Function):
    """sin(w x) / w, with a derivative that is multiplied by a number."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return (FAST * x).sin() / FAST

    @staticmethod
    def backward(ctx, v):
        return v * (FAST * ctx.saved_tensors[0]).cos().conj() * ctx.scale, None


class Pole(torch.autograd.Function):
    """log x, with a derivative that is multiplied by a number."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x.log()

    @staticmethod
    def backward(ctx, v):
        return v / ctx.saved_tensors[0].conj() * ctx.scale, None


@BOTH
@WAYS
@pytest.mark.parametrize("scale", [1, 1.003, 0.99, 2, -1])
def test_a_few_steps_from_a_pole_smaller_steps_decide(dtype, jacobian, scale):
    leaf = torch.tensor([5e-6, 0.5, 1.5], dtype=dtype, requires_grad=True)
    request = Request(lambda x: (Pole.apply(x, scale),), (leaf,), DOUBLE, coverage=Coverage(jacobian))
    found = check_claim("backward", request)
    if scale != 1:
        assert found.kind == "wrong"
    elif jacobian == "full":
        assert found is None
    else:  # along random directions, a pole may look like a kink
        assert found is None or found.kind == "inconclusive"


def ask(dtype, scale, jacobian):
    leaf = torch.full((4,), 2e-6, dtype=dtype, requires_grad=True)
    return check_claim(
        "backward", Request(lambda x: (Waves.apply(x, scale),), (leaf,), DOUBLE, coverage=Coverage(jacobian))
    )


@BOTH
@WAYS
def test_a_right_derivative_holds_where_truncation_hides_it(dtype, jacobian):
    assert ask(dtype, 1, jacobian) is None


@BOTH
@WAYS
@pytest.mark.parametrize("scale", [1.003, 0.99, 2, -1])
def test_a_wrong_derivative_is_found_behind_the_truncation(dtype, jacobian, scale):
    assert ask(dtype, scale, jacobian).kind == "wrong"
