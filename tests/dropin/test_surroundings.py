"""The answer does not depend on what surrounds a call: the default device, inference mode, a path that ours takes."""

from __future__ import annotations

import warnings

import pytest
import torch
from operators import faulty

import opcheck

DTYPES = (torch.float64, torch.complex128)


def leaf(*shape, dtype=torch.float64):
    generator = torch.Generator("cpu").manual_seed(1)
    return (torch.rand(shape, dtype=dtype, generator=generator, device="cpu") + 0.5).requires_grad_()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [6, 23, 600], ids=["few", "many", "too many"])
def test_the_default_device_may_be_another_one(size, dtype):
    x = leaf(size, dtype=dtype)
    with torch.device("meta"):
        assert opcheck.gradcheck(torch.sin, x, check_forward_ad=True)
        assert opcheck.gradgradcheck(torch.sin, x)
        with pytest.raises(opcheck.GradcheckError, match="Jacobian mismatch"):
            opcheck.gradcheck(faulty.wrong_double, x)
    assert opcheck.gradcheck(torch.sin, x)  # nothing of that device is kept


@pytest.mark.parametrize("dtype", DTYPES)
def test_so_it_may_for_all_checks(dtype):
    x = leaf(2, 13, dtype=dtype)
    with torch.device("meta"):
        assert opcheck.check(torch.sin, x).passed
        assert opcheck.check(torch.matmul, leaf(3, 2, dtype=dtype), x).passed
        wrong = opcheck.check(faulty.wrong_double, x, checks="backward", raise_exception=False)
    assert [one.outcome for one in wrong.failures] == ["failed"]
    assert opcheck.check(torch.sin, x).passed


class Flat(torch.autograd.Function):
    """|x|, transposed. Its backward needs a contiguous cotangent, as gradcheck passes it."""

    factor = 1

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.abs().t()

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v.view(-1).view(x.t().shape).t() * x.sgn() * Flat.factor


@pytest.mark.parametrize(
    "x", [leaf(2, 3), torch.eye(2, 3, dtype=torch.float64).requires_grad_()], ids=["smooth", "kink"]
)
def test_cotangents_are_contiguous_on_each_path(x, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the kink
        assert opcheck.gradcheck(Flat.apply, x) is torch.autograd.gradcheck(Flat.apply, x) is True
        monkeypatch.setattr(Flat, "factor", 2)
        assert opcheck.gradcheck(Flat.apply, x, raise_exception=False) is False
        with pytest.raises(opcheck.GradcheckError, match="the gradient is 2 times what it should be"):
            opcheck.gradcheck(Flat.apply, leaf(2, 3))


def test_an_expanded_cotangent_is_refused_as_by_torch():
    x, v = leaf(3), torch.ones((), dtype=torch.float64).expand(3).requires_grad_()
    for function in (torch.autograd.gradgradcheck, opcheck.gradgradcheck):
        with pytest.raises(RuntimeError, match="has a dimension with stride 0"):
            function(torch.sin, x, v)
    assert opcheck.gradgradcheck(torch.sin, x, v.detach())


def test_another_number_of_cotangents_is_left_to_torch():
    x = leaf(3)
    assert opcheck.gradgradcheck(torch.sin, x, (torch.ones_like(x),) * 2) is True
    for function in (torch.autograd.gradgradcheck, opcheck.gradgradcheck):
        with pytest.raises(RuntimeError, match="got 2 tensors and 1 gradients"):
            function(lambda x: (x * x, x**3), x, (torch.ones_like(x),))


def test_without_graphs_nothing_passes():
    x = leaf(3)
    for function in (torch.autograd.gradgradcheck, opcheck.gradgradcheck):
        with torch.inference_mode(), pytest.raises(TypeError):
            function(lambda x: x * x.detach(), x)


@pytest.mark.parametrize("tolerance", [{"nondet_tol": float("nan")}, {"nondet_tol": -1.0}])
def test_tolerances_that_are_none_are_left_to_torch(tolerance):
    def answer(function):
        return function(torch.sin, leaf(3), raise_exception=False, **tolerance)

    assert answer(opcheck.gradcheck) is answer(torch.autograd.gradcheck)
