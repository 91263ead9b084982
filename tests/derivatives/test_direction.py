"""A derivative along one direction: what it lets pass, and what it leaves to the whole Jacobian."""

import pytest
import torch
from operators import awkward, orders

from opcheck.derivatives.autodiff import Primal, Pullback, Pushforward
from opcheck.derivatives.comparison import Comparison
from opcheck.derivatives.point import Point
from opcheck.derivatives.tolerances import BY_PRECISION, DOUBLE

BOTH = pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
MODES = pytest.mark.parametrize("mode", ["reverse", "forward"])


def leaf(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=dtype, generator=generator).requires_grad_()


def evidence(function, *leaves):
    return Point(Primal(lambda *x: (function(*x),), (0,)), leaves)


def along_one(point, mode, numbers):
    return Comparison(point.along_one, mode, numbers)


@BOTH
@MODES
@pytest.mark.parametrize(
    "function", [torch.sin, lambda x: x.exp() * x, lambda x: x.prod(), lambda x: x[:, None] @ x[None], lambda x: x * 0]
)
def test_right_derivatives_hold(function, mode, dtype):
    assert along_one(evidence(function, leaf(4, dtype=dtype)), mode, BY_PRECISION[dtype]).holds_closely


@BOTH
@pytest.mark.parametrize("entry", range(4))
def test_a_single_wrong_entry_of_a_derivative_is_doubted(entry, dtype):
    class OneEntry(orders.Cube):
        @staticmethod
        def backward(ctx, v):
            found = orders.Cube.backward(ctx, v)
            found[entry] *= 1.002
            return found

    assert not along_one(evidence(OneEntry.apply, leaf(4, dtype=dtype)), "reverse", DOUBLE).holds_closely


@BOTH
@pytest.mark.parametrize("derivative", [lambda f: Pullback(f, 1), Pushforward])
def test_the_derivative_of_a_derivative_holds(derivative, dtype):
    function = derivative(Primal(lambda x: (x.exp() * x,), (0,)))
    found = Point(function, (leaf(3, dtype=dtype), leaf(3, dtype=dtype, seed=1)))
    assert along_one(found, "reverse", DOUBLE).holds_closely


@BOTH
def test_a_wrong_third_derivative_is_doubted_and_no_other(dtype):
    function = Primal(lambda x: (awkward.cube_wrong_at_third_order(x),), (0,))
    second = Point(Pullback(function, 1), (leaf(3, dtype=dtype), leaf(3, dtype=dtype, seed=1)))
    inner = Pullback(function, 1)
    third = Point(Pullback(inner, 2), tuple(leaf(3, dtype=dtype, seed=seed) for seed in range(3)))
    assert along_one(second, "reverse", DOUBLE).holds_closely
    assert not along_one(third, "reverse", DOUBLE).holds_closely


def test_a_kink_is_left_to_the_whole_jacobian():
    at_zero = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
    assert not along_one(evidence(torch.abs, at_zero), "reverse", DOUBLE).holds_closely


def test_nan_is_doubted():
    nan = torch.tensor([-1.0, 1.0], dtype=torch.float64, requires_grad=True)
    assert not along_one(evidence(torch.sqrt, nan), "reverse", DOUBLE).holds_closely


def test_a_derivative_that_raises_raises():
    def raises(x):
        x.register_hook(lambda v: 1 / 0)
        return x.sin()

    with pytest.raises(ZeroDivisionError):
        assert along_one(evidence(raises, leaf(3)), "reverse", DOUBLE).holds_closely
