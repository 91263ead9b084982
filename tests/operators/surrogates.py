"""Operators whose gradient is meant to differ from their derivative, right and wrong, and functions that say which."""

import torch


class Replaced(torch.autograd.Function):
    """Values of one function, and the gradient of another one, or `scale` times it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, values, slope, scale):
        return values(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, _, ctx.slope, ctx.scale = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * (ctx.scale * ctx.slope(x)).conj(), None, None, None

    @staticmethod
    def jvp(ctx, t, *_):
        (x,) = ctx.saved_tensors
        return t * ctx.scale * ctx.slope(x)


def rounded(x):
    """Round to multiples of a quarter, real and imaginary parts alike."""
    parts = torch.view_as_real(x) if x.is_complex() else x
    parts = (parts * 4).round() / 4
    return torch.view_as_complex(parts) if x.is_complex() else parts


# Straight through: the gradient is that of the identity.
def through(x):
    return Replaced.apply(x, rounded, torch.ones_like, 1)


def through_scaled(x):
    return Replaced.apply(x, rounded, torch.ones_like, 1.5)


def identity(x):
    return x * 1


def as_written(x):
    """The same, as people write it."""
    return x + (rounded(x) - x).detach()


def held_constant(x):
    return x * x.abs().sum().detach()


def held_constant_in_reverse_mode(x):
    with torch.no_grad():
        total = x.abs().sum()
    return x * total


# A gradient of zero, wherever the values move.
def constant(x):
    return Replaced.apply(x, torch.sin, torch.zeros_like, 1)


def constant_in_part(x):
    return x * 0 + torch.sin(x).detach()


def constant_but_for_a_part(x):
    return Replaced.apply(x, torch.sin, lambda x: 0.01 * torch.ones_like(x), 1)


def constant_at_first(x):
    """Its derivative is zero at a point, and moves."""
    return Replaced.apply(x, torch.sin, lambda x: x - x.detach(), 1)


# A reversed gradient.
def reversal(x):
    return Replaced.apply(x, torch.clone, torch.ones_like, -1)


def reversal_forgotten(x):
    return Replaced.apply(x, torch.clone, torch.ones_like, 1)


def negated(x):
    return -x


# Quantized, with the gradient of something smooth: its second derivative is not zero.
def smooth(x):
    return Replaced.apply(x, lambda x: rounded(x.sin()), torch.cos, 1)


def smooth_scaled(x):
    return Replaced.apply(x, lambda x: rounded(x.sin()), torch.cos, 2)


class Constant(torch.autograd.Function):
    """cos(x), whose gradient is missing."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.cos()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, v):
        return torch.zeros_like(v)

    @staticmethod
    def jvp(ctx, t):
        return torch.zeros_like(t)


def smooth_at_first(x):
    """Right at first order, wrong at second."""
    return Replaced.apply(x, lambda x: rounded(x.sin()), Constant.apply, 1)


# A product of quantized factors: the gradient is no function's derivative, unless what is detached is held constant.
class Product(torch.autograd.Function):
    """round(x) round(y), straight through; `forgets` uses what was not quantized."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, y, forgets):
        return rounded(x) * rounded(y)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y, ctx.forgets = inputs
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)

    @staticmethod
    def factors(ctx):
        x, y = ctx.saved_tensors
        return (x, as_written(y)) if ctx.forgets else (as_written(x), as_written(y))

    @staticmethod
    def backward(ctx, v):
        x, y = Product.factors(ctx)
        return v * y.conj(), v * x.conj(), None

    @staticmethod
    def jvp(ctx, t, u, _):
        x, y = Product.factors(ctx)
        return t * y + x * u


def product(x, y):
    return Product.apply(x, y, False)


def product_forgets(x, y):
    return Product.apply(x, y, True)


def product_as_written(x, y):
    return as_written(x) * as_written(y)


# Functions that cannot stand in for anything above.
def of_another_shape(x):
    return x.sum()


def of_another_dtype(x):
    return x.to(torch.complex64 if x.is_complex() else torch.float32)


def of_two_outputs(x):
    return x * 1, x * 2


def raising(x):
    raise ValueError("not for me")


CALLS = [0]


def detaches_more_and_more(x):
    CALLS[0] += 1
    return x + sum(0 * x.detach() for _ in range(CALLS[0]))


class QuantizedLinear(torch.nn.Module):
    """A linear layer with quantized weights, trained straight through."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 6).reshape(2, 3))
        self.scale = scale

    def forward(self, x):
        return x @ as_written(self.weight).T * self.scale


class WrongLinear(QuantizedLinear):
    """With weights that get no gradient."""

    def forward(self, x):
        return x @ rounded(self.weight).T + 0 * self.weight.sum()


def through_sparse(x, masked):
    return through(dense(x, masked))


def through_sparse_scaled(x, masked):
    return through_scaled(dense(x, masked))


def dense(x, masked):
    return x.to_dense(masked_grad=masked)
