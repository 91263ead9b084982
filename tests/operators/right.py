"""Operators without mistakes, for tests that must pass. Real and complex."""

import torch
from torch import Tensor


class Square(torch.autograd.Function):
    """x * x, with every kind of derivative written out."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * (2 * x).conj()

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 2 * x * t


def square(x: Tensor) -> Tensor:
    return Square.apply(x)


def square_(x: Tensor) -> Tensor:
    return x.mul_(x)


def turned_(x: Tensor) -> Tensor:
    return x.t_()


def scaled_(x: Tensor) -> None:
    x.mul_(3)


class FirstOrderOnly(torch.autograd.Function):
    """x * x, honest about having neither a second derivative nor forward mode nor a vmap rule."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * (2 * x).conj()


def first_order_only(x: Tensor) -> Tensor:
    return FirstOrderOnly.apply(x)


class SecondOrderOnly(torch.autograd.Function):
    """x * x * x, whose backward pass is a function of its own, without a second derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, v):
        return SecondOrderOnlyBackward.apply(*ctx.saved_tensors, v)


class SecondOrderOnlyBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, v):
        ctx.save_for_backward(x, v)
        return v * (3 * x * x).conj()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, u):
        x, v = ctx.saved_tensors
        return 6 * x.conj() * u.conj() * v, u * (3 * x * x)


def second_order_only(x: Tensor) -> Tensor:
    return SecondOrderOnly.apply(x)


def sum_and_index(x: Tensor) -> tuple[Tensor, Tensor, str]:
    """Several outputs: one differentiable, one of integers, one that is no tensor."""
    return x.sum(-1), x.abs().argmax(-1), "no tensor"


def integers_only(x: Tensor) -> Tensor:
    """No differentiable output at all."""
    return (x.real if x.is_complex() else x).sign().to(torch.int64)


def weighted_total(tensors: list[Tensor], *, weight: Tensor) -> Tensor:
    """A tensor list, and a tensor in a keyword argument."""
    return torch.stack([tensor.sum() for tensor in tensors]).sum() * weight


def noisy(x: Tensor) -> Tensor:
    """Random: to be tested under `reseed`."""
    return x * torch.rand_like(x)


class Dropped(torch.autograd.Function):
    """Drops half of the elements. Backward draws them again, from the state in which forward began."""

    @staticmethod
    def forward(ctx, x):
        ctx.state = torch.get_rng_state()
        return x * (torch.rand(x.shape) < 0.5)

    @staticmethod
    def backward(ctx, v):
        generator = torch.Generator()
        generator.set_state(ctx.state)
        return v * (torch.rand(v.shape, generator=generator) < 0.5)


def dropped(x: Tensor) -> Tensor:
    """Random, with a backward pass that draws as forward does."""
    return Dropped.apply(x)


def scale(x: Tensor, factor: float = 2.0) -> Tensor:
    """Linear in x."""
    return x * factor


def square_into(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x * x, with out=."""
    return torch.mul(x, x, out=out)


def square_into_a_view(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x * x, with out=, of which it returns a view."""
    return x * x if out is None else out.copy_(x * x)[...]


def square_into_contiguous(x: Tensor, *, out: Tensor | None = None) -> Tensor | None:
    """x * x, with an out= that must be contiguous, and is not returned."""
    if out is None:
        return x * x
    if not out.is_contiguous():
        raise ValueError("out must be contiguous")
    out.view(-1).copy_((x * x).reshape(-1))
    return None
