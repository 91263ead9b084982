"""A complex function in real form has the same Jacobian, sees the same tensors, and fails for the same reasons."""

import pytest
import torch
from operators.looped import reverse_jacobian

from opcheck.derivatives import Request, TorchEngine
from opcheck.derivatives.numbers import DOUBLE
from opcheck.derivatives.real_form import in_real_form


def request(function, *leaves, **more):
    return Request(function, tuple(leaf.requires_grad_() for leaf in leaves), DOUBLE, **more)


def test_its_jacobian_is_that_in_real_coordinates():
    z, x = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex128), torch.tensor([0.5], dtype=torch.float64)
    asked = request(lambda z, x: (z.conj() * z.abs() + x, z.real * x), z, x)
    real = in_real_form(asked)
    assert [leaf.is_complex() for leaf in real.leaves] == [False, False]
    for own, same in zip(
        reverse_jacobian(asked.function, asked.leaves), reverse_jacobian(real.function, real.leaves), strict=True
    ):
        for block, again in zip(own, same, strict=True):
            torch.testing.assert_close(block, again)


def test_strides_and_lazy_conjugation_are_those_of_the_leaf():
    seen = []

    def spy(z):
        seen.append((z.stride(), z.is_conj(), z.tolist()))
        return (z * 1,)

    z = (torch.arange(6, dtype=torch.float64) * (1 + 1j))[::2].conj()
    asked = request(spy, z)
    spy(z)
    real = in_real_form(asked)
    real.function(*real.leaves)
    assert seen[0] == seen[1]


def test_given_cotangents_keep_their_values():
    v = torch.tensor([1 + 2j], dtype=torch.complex128).conj()
    real = in_real_form(request(lambda z: (z * 2,), torch.ones(1, dtype=torch.complex128), grad_outputs=(v,)))
    assert real.grad_outputs[0].tolist() == [[1.0, -2.0]]


def test_real_functions_are_left_alone():
    asked = request(lambda x: (x.sin(),), torch.ones(2, dtype=torch.float64))
    assert in_real_form(asked) is asked


class Forgetful(torch.autograd.Function):
    """Its jvp forgets the imaginary part of the tangent."""

    @staticmethod
    def forward(z):
        return z * 2j

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, v):
        return v * -2j

    @staticmethod
    def jvp(ctx, t):
        return t.real * 2j


@pytest.mark.parametrize(("check", "wrong"), [("forward_ad", True), ("backward", False)])
def test_a_fault_of_forward_mode_alone_is_found_by_it_alone(check, wrong):
    asked = request(lambda z: (Forgetful.apply(z),), torch.ones(2, dtype=torch.complex128))
    assert (TorchEngine().ask(check, asked) is not None) is wrong
