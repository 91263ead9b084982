"""Faulty operators whose mistakes are easily taken for other ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from operators.faulty import function, right_jvp, right_vjp, square

uneven = function(square, lambda x, v: v * 2 * x * (1 + 0.5 * x))
"""Off by another factor at each element."""
constant = function(square, lambda x, v: 2.686 * right_vjp(x, v))
mean_for_sum = function(lambda x: x.sum(), lambda x, v: v.expand(x.shape) / max(x.numel(), 1))
zeros = function(square, lambda x, v: torch.zeros_like(x))
tiny = function(lambda x: 1e-6 * x.sin(), lambda x, v: -1e-6 * v * x.cos())
wrong_tangent_sign = function(square, right_vjp, lambda x, t: -2 * x * t)


def noise(x: Tensor, size: float) -> Tensor:
    return 1 + size * torch.rand_like(x)


random_backward = function(square, lambda x, v: right_vjp(x, v) * noise(x, 0.5))
slightly_random_backward = function(square, lambda x, v: right_vjp(x, v) * noise(x, 1e-7))
random_jvp = function(square, right_vjp, lambda x, t: right_jvp(x, t) * noise(x, 0.5))


def random_forward(x: Tensor) -> Tensor:
    return x * noise(x, 0.5)


def cuts_weight(x: Tensor, weight: Tensor) -> Tensor:
    return x * weight.detach()


def halves(x: Tensor) -> Tensor:
    return x * x.detach()


class Product(torch.autograd.Function):
    """x * weight."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight):
        return x * weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, v):
        x, weight = ctx.saved_tensors
        return v * weight.conj(), v * x.conj()

    @staticmethod
    def jvp(ctx, t, s):
        x, weight = ctx.saved_tensors
        return t * weight + x * s


class NoneForWeight(Product):
    @staticmethod
    def backward(ctx, v):
        return v * ctx.saved_tensors[1].conj(), None


class ForgetsWeight(Product):
    @staticmethod
    def jvp(ctx, t, s):
        return t * ctx.saved_tensors[1]


class TripleWeight(Product):
    @staticmethod
    def backward(ctx, v):
        x, weight = ctx.saved_tensors
        return v * weight.conj(), 3 * v * x.conj()


def none_for_weight(x: Tensor, weight: Tensor) -> Tensor:
    return NoneForWeight.apply(x, weight)


def forgets_weight(x: Tensor, weight: Tensor) -> Tensor:
    return ForgetsWeight.apply(x, weight)


def triple_weight(x: Tensor, *, weight: Tensor) -> Tensor:
    return TripleWeight.apply(x, weight)


def triple_second(tensors: Sequence[Tensor]) -> Tensor:
    return TripleWeight.apply(*tensors)


class Cube(torch.autograd.Function):
    """x^3: right at first and second order; its second derivative was saved without a graph."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, v):
        return Slope.apply(*ctx.saved_tensors, v)


class Slope(torch.autograd.Function):
    """3 x^2 v, whose gradient for x uses numbers without a graph."""

    @staticmethod
    def forward(ctx, x, v):
        ctx.save_for_backward(x, v)
        return 3 * x**2 * v

    @staticmethod
    def backward(ctx, w):
        x, v = ctx.saved_tensors
        return 6 * x.detach() * v * w, 3 * x**2 * w


def third_order_lost(x: Tensor) -> Tensor:
    return Cube.apply(x)


class TangentFromData(torch.autograd.Function):
    """x^2, with a jvp from data saved without a graph."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.slope = (2 * x).detach()
        return x * x

    @staticmethod
    def backward(ctx, v):
        return right_vjp(ctx.saved_tensors[0], v)

    @staticmethod
    def jvp(ctx, t):
        return ctx.slope * t


def tangent_from_data(x: Tensor) -> Tensor:
    return TangentFromData.apply(x)


@torch.jit.script
def _scripted(x: Tensor) -> Tensor:
    return (x * x).sin()


def scripted(x: Tensor) -> Tensor:
    return _scripted(x)


def scripted_in_part(x: Tensor) -> Tensor:
    return _scripted(x) + x**3


def scripted_and_cut(x: Tensor) -> Tensor:
    return _scripted(x) + (x * x).detach()


def hidden_by_where(x: Tensor) -> Tensor:
    return torch.where(x == 0, torch.ones_like(x), x.sin() / x)


def not_a_number(x: Tensor) -> Tensor:
    return x / (x - x)


class Matmul(torch.autograd.Function):
    """A product with a matrix that backward does not transpose."""

    @staticmethod
    def forward(ctx, a, x):
        ctx.save_for_backward(a)
        return a @ x

    @staticmethod
    def backward(ctx, v):
        return None, ctx.saved_tensors[0] @ v


def not_transposed(x: Tensor) -> Tensor:
    a = torch.arange(9.0, dtype=x.real.dtype).reshape(3, 3).to(x.dtype)
    return Matmul.apply(a, x)


class Bias(torch.autograd.Function):
    """A sum with a bias whose gradient is that of the first row."""

    @staticmethod
    def forward(ctx, x, bias):
        return x + bias

    @staticmethod
    def backward(ctx, v):
        return v, v[0]


def bias_of_first_row(x: Tensor, bias: Tensor) -> Tensor:
    return Bias.apply(x, bias)


class Pair(torch.autograd.Function):
    """Two outputs; an undefined cotangent of the second one is taken for ones."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return 2 * x, 3 * x

    @staticmethod
    def backward(ctx, v, w):
        if v is None and w is None:
            return None
        return 3 * w if v is None else 2 * v + 3 * (torch.ones_like(v) if w is None else w)


def ones_for_undefined(x: Tensor) -> tuple[Tensor, Tensor]:
    return Pair.apply(x)


class NormSaved(torch.autograd.Function):
    """Divides rows by their norm. Saves the norm, which has no graph."""

    @staticmethod
    def forward(ctx, x):
        norm = (x * x.conj()).real.sum(-1, keepdim=True).sqrt()
        ctx.save_for_backward(x, norm)
        return x / norm

    @staticmethod
    def backward(ctx, v):
        x, norm = ctx.saved_tensors
        return v / norm - x * (v * x.conj()).real.sum(-1, keepdim=True) / norm**3


def norm_saved(x: Tensor) -> Tensor:
    return NormSaved.apply(x)


class WeightSaved(torch.autograd.Function):
    """Is wrong at second order, but not because of the weight, which is constant."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x**3 * weight

    @staticmethod
    def backward(ctx, v):
        x, weight = ctx.saved_tensors
        off = 0.1 * (x - x.detach()) * torch.arange(len(x)).to(x)  # zero, unlike its derivative
        return v * ((3 * x**2 + off) * weight).conj(), None


def weight_saved(x: Tensor, weight: Tensor) -> Tensor:
    return WeightSaved.apply(x, weight)
