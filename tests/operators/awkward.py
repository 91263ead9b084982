"""Operators whose mistakes are small, hidden at a kink, or show at third order only."""

import torch
from torch import Tensor

from operators.faulty import function, right_vjp, square


def in_single(x: Tensor) -> Tensor:
    """Round to single precision and back."""
    return x.to(torch.complex64 if x.is_complex() else torch.float32).to(x.dtype)


coarse_gradient = function(square, lambda x, v: v * in_single(2 * x).conj())
coarse_tangent = function(square, right_vjp, lambda x, t: in_single(2 * x) * t)
off_by_half_a_thousandth = function(square, lambda x, v: v * (2 * x * (1 + 5e-4)).conj())
wrong_abs = function(torch.abs, lambda x, v: -v * x.sgn())
wrong_triple = function(lambda x: 3 * x, lambda x, v: 4 * v)


class Cube(torch.autograd.Function):
    """x^3 with a right gradient, made of an operator whose gradient is right as well."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, v):
        return v * Slope.apply(*ctx.saved_tensors).conj()


class Slope(torch.autograd.Function):
    """3 x^2, whose right gradient is made of an operator with a wrong one."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return 3 * x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, v):
        return v * 2 * wrong_triple(*ctx.saved_tensors).conj()


def cube_wrong_at_third_order(x: Tensor) -> Tensor:
    return Cube.apply(x)


def depends_on_grad_mode(x):
    """Return other values when no gradients are recorded."""
    return x.sin() if torch.is_grad_enabled() else 2 * x.sin()


class OldSlope(torch.autograd.Function):
    """v times the slope of x². Without setup_context, so that torch.func refuses it."""

    @staticmethod
    def forward(ctx, x, v):
        ctx.save_for_backward(x, v)
        return v * (2 * x).conj()

    @staticmethod
    def backward(ctx, w):
        x, v = ctx.saved_tensors
        return 2 * v * w.conj(), w * 2 * x


class OldForm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return OldSlope.apply(x, v)


def backward_of_the_old_form(x):
    return OldForm.apply(x)


def hidden_nan(x):
    """sqrt(x - 0.5) where x is above, zero elsewhere: where() hides the NaN of the value, not that of the gradient."""
    return torch.where(x > 0.5, torch.sqrt(x - 0.5), 0 * x)


sqrt_of_wrong_sign = function(torch.sqrt, lambda x, v: -v / (2 * x.sqrt().conj()))


def aligned(x, y):
    """The rotation that takes rows to rows. If there are fewer rows than columns, it is one of many, at random."""
    u, _, vh = torch.linalg.svd(x.mT @ y)
    return u @ vh


def _rippled(x):
    return torch.sin(1e5 * x)


ripples_of_wrong_sign = function(_rippled, lambda x, v: -1e5 * v * torch.cos(1e5 * x).conj())
"""Many waves between two samples, and a smooth function at each."""
