"""squareplus(x) = (x + sqrt(x^2 + b)) / 2, a smooth relu, as a `torch.autograd.Function`."""

import torch
from torch import Tensor


class Squareplus(torch.autograd.Function):
    """The right version: reverse mode, forward mode, vmap, any order."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, b: float) -> Tensor:
        return (x + root(x, b)) / 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.b = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * slope(x, ctx.b).conj(), None

    @staticmethod
    def jvp(ctx, t, _):
        (x,) = ctx.saved_tensors
        return t * slope(x, ctx.b)


class WrongSquareplus(torch.autograd.Function):
    """The wrong version: the slope is kept as a plain number, so the second derivative is lost."""

    @staticmethod
    def forward(ctx, x: Tensor, b: float) -> Tensor:
        ctx.slope = slope(x, b)
        return (x + root(x, b)) / 2

    @staticmethod
    def backward(ctx, v):
        return v * ctx.slope.conj(), None


def root(x: Tensor, b: float) -> Tensor:
    """Return sqrt(x^2 + b), computed in float32 for float16, where squares of numbers from 256 on are infinite."""
    return root(x.float(), b).half() if x.dtype is torch.float16 else (x * x + b).sqrt()


def slope(x: Tensor, b: float) -> Tensor:
    return (1 + x / root(x, b)) / 2


def squareplus(x: Tensor, b: float = 1.0) -> Tensor:
    return Squareplus.apply(x, b)


def wrong_squareplus(x: Tensor, b: float = 1.0) -> Tensor:
    return WrongSquareplus.apply(x, b)
