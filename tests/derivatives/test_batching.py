"""A batch gives the values at many points, or the products of many directions: those that each alone gives."""

import pytest
import torch
from operators.asking import Request, check_claim
from operators.closed_forms import leaf, real_jacobian
from operators.faulty import not_batchable

from opcheck.derivatives import default_numbers
from opcheck.derivatives.autodiff import Primal, Pullback
from opcheck.derivatives.coordinates import vector
from opcheck.derivatives.differences import batched
from opcheck.derivatives.extent import Coverage
from opcheck.derivatives.point import Point

REAL, COMPLEX = torch.float64, torch.complex128
BATCHES = pytest.mark.parametrize("batch", [1, 2, 100])


def mixed(x, z):
    return (x[:, None] * z, (z.conj() * z).real.sum(), x.sin())


LEAVES = leaf(2), leaf(3, dtype=COMPLEX, seed=1)
M, N = len(vector(mixed(*LEAVES))), len(vector(LEAVES))


def rows(count, size, seed):
    return torch.randn(count, size, dtype=REAL, generator=torch.Generator().manual_seed(seed))


@BATCHES
def test_each_row_is_a_point_of_its_own(batch):
    points = rows(5, N, 0)
    found = batched(Primal(mixed, (0, 1, 2)).rows, points, LEAVES, batch)
    for row, point in zip(found, points, strict=True):
        torch.testing.assert_close(row, vector(mixed(point[:2], torch.view_as_complex(point[2:].reshape(3, 2)))))


@pytest.mark.parametrize("memory", [1, 1 << 28], ids=["one row at a time", "all rows"])
def test_each_row_has_a_cotangent_or_a_tangent_of_its_own(memory):
    found = Point(Primal(mixed, (0, 1, 2)), LEAVES, coverage=Coverage(memory=memory))
    jacobian, cotangents, tangents = real_jacobian(mixed, LEAVES), rows(5, M, 2), rows(5, N, 1)
    for of in (found.vmapped, found.products):
        torch.testing.assert_close(of("reverse", cotangents), cotangents @ jacobian)
        torch.testing.assert_close(of("forward", tangents), tangents @ jacobian.T)


@pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])
def test_the_derivative_of_a_derivative_is_had_in_both_modes(dtype):
    x, v = leaf(3, dtype=dtype), leaf(3, dtype=dtype, seed=1)
    found = Point(Pullback(Primal(lambda x: (x**3,), (0,)), 1), (x, v))
    expected = real_jacobian(lambda x, v: ((3 * x**2).conj() * v,), (x, v))
    for mode, size in zip(("reverse", "forward"), found.size, strict=True):
        products = found.vmapped(mode, torch.eye(size, dtype=REAL))
        torch.testing.assert_close(products if mode == "reverse" else products.T, expected)


def test_an_output_without_derivative_has_tangents_and_gradients_of_zero():
    found = Point(Primal(lambda x: (torch.zeros(2, dtype=REAL),), (0,)), (leaf(2),))
    for mode in ("reverse", "forward"):
        assert not found.products(mode, torch.ones(1, 2, dtype=REAL)).any()
        assert not found.analytical(mode).jacobian.any()


def test_the_points_that_were_given_stay_as_they_are():
    points = rows(3, N, 0)
    before = points.clone()
    batched(Primal(mixed, (0, 1, 2)).rows, points, LEAVES, 100)
    assert torch.equal(points, before)
    assert not points.requires_grad


def test_what_cannot_be_batched_is_an_error():
    x = leaf(4)
    with pytest.raises(RuntimeError, match="vmap"):
        batched(Primal(lambda x: (not_batchable(x),), (0,)).rows, vector((x,)).repeat(2, 1), (x,), 2)


class OffInABatch(torch.autograd.Function):
    """x times its sum, with a gradient that is off by a share in a batch only."""

    share = 0.0

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.sum()

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        off = OffInABatch.share * torch._C._functorch.is_batchedtensor(v)
        return (v * x.sum() + (v * x).sum()) * (1 + off)


@pytest.mark.parametrize("check", ["batched_grad", "batched_forward_grad"])
def test_rounding_where_terms_cancel_in_single_precision_is_no_objection(check):
    x, weight = (
        9 * torch.rand(shape, generator=torch.Generator().manual_seed(1)) for shape in ((1, 3, 4, 4), (3, 3, 3, 3))
    )
    leaves = (x - 4.5).requires_grad_(), (weight - 4.5).requires_grad_()
    request = Request(lambda x, w: (torch.conv_transpose2d(x, w, stride=2),), leaves, default_numbers(torch.float32))
    assert check_claim(check, request) is None


@pytest.mark.parametrize(("dtype", "share"), [(torch.float32, 0.01), (REAL, 1e-4)])
def test_a_gradient_that_is_wrong_in_a_batch_is_noticed_in_any_precision(dtype, share, monkeypatch):
    request = Request(lambda x: (OffInABatch.apply(x),), (leaf(4, dtype=dtype),), default_numbers(dtype))
    assert check_claim("batched_grad", request) is None
    monkeypatch.setattr(OffInABatch, "share", share)
    assert "the vmapped backward pass is not that of the loop" in check_claim("batched_grad", request).text
