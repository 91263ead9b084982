"""When differences along one direction tell that a derivative is wrong, and when rounding leaves none to tell."""

import pytest
import torch

from opcheck.derivatives.autodiff import Primal
from opcheck.derivatives.comparison import Comparison
from opcheck.derivatives.point import Point
from opcheck.derivatives.tolerances import DOUBLE

BOTH = pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=["real", "complex"])
MODES = pytest.mark.parametrize("mode", ["reverse", "forward"])


def is_settled(function, mode, *leaves):
    point = Point(Primal(lambda *own: (function(*own),), (0,)), tuple(leaf.requires_grad_() for leaf in leaves))
    try:
        comparison = Comparison(point.along_one, mode, DOUBLE)
    except torch.linalg.LinAlgError:  # its backward refuses the point
        return False
    return not comparison.holds_closely and comparison.is_settled


@BOTH
@MODES
@pytest.mark.parametrize("size", [3, 4, 5])
def test_equal_eigenvalues_have_no_derivative_to_tell(dtype, mode, size):
    """Which eigenvectors belong to them, rounding decides, and so it does by another processor."""
    matrices = [torch.full((size, size), value, dtype=dtype) for value in (0.1, 1.0, 3.0, 30.0, 1000.0)]
    assert not any(is_settled(torch.linalg.eigvals, mode, matrix) for matrix in matrices)


@BOTH
@MODES
def test_what_is_rounded_inside_has_none_at_any_step(dtype, mode):
    """Numbers of 1e9 are multiples of 1.2e-7: differences at 1e-6 and at 2e-6 give 1.013 for 1, here and there."""
    points = [torch.tensor(0.37 * number, dtype=dtype) for number in range(40)]
    assert not any(is_settled(lambda x: (x + 1e9) - 1e9, mode, point) for point in points)


class Scaled(torch.autograd.Function):
    """x^2, with a derivative that is multiplied by what a function of x says."""

    @staticmethod
    def forward(x, scale):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])
        ctx.scale = inputs[1]

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * (2 * x).conj() * ctx.scale(x), None

    @staticmethod
    def jvp(ctx, t, _):
        (x,) = ctx.saved_tensors
        return t * 2 * x * ctx.scale(x)


@BOTH
@MODES
@pytest.mark.parametrize(
    "scale",
    [
        lambda x: 1.01,
        lambda x: 1 + (x[0] == x[1]).to(x.dtype),  # as it is at this point, and at no other nearby
        lambda x: 1 + torch.rand((), dtype=torch.float64),
    ],
    ids=["always", "for ties", "at random"],
)
def test_a_wrong_derivative_is_told(dtype, mode, scale):
    assert is_settled(lambda x: Scaled.apply(x, scale), mode, torch.full((3,), 30.0, dtype=dtype))


@BOTH
@MODES
def test_a_wrong_derivative_at_the_edge_of_where_it_is_defined_is_told(dtype, mode):
    def guarded(x):
        if x.real.detach().max() > 1 + 1e-5:
            raise ValueError("expected numbers up to 1")
        return Scaled.apply(x, lambda x: 2.0)

    assert is_settled(guarded, mode, torch.ones(2, dtype=dtype))


@BOTH
def test_noise_in_many_outputs_is_told_from_a_wrong_one(dtype):
    """Numbers up to 1e6 are multiples of 1e-10: differences are off by 1e-4, each by another part of it."""
    generator = torch.Generator().manual_seed(0)
    factors, large = torch.rand(2, 32, 8000, generator=generator, dtype=torch.float64)
    large = 4e6 * (large - 0.5)

    def noisy(x):
        return ((x[0] * (factors + 0.5) + large) - large).mean(0)

    def wrong(x):
        return noisy(x) + Scaled.apply(x[2:3], lambda x: 2.0)

    leaf = torch.tensor([1.3, 0.7, 2.1], dtype=dtype)
    assert not is_settled(noisy, "forward", leaf.clone())
    assert is_settled(wrong, "forward", leaf.clone())
