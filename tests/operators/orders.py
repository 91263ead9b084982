"""x³ and x y² with derivatives that are right up to some order, each with a right twin, real and complex.

`FAULTS` has, for each check of a further order, the names of the functions that must fail under it and under no other
derivative; `TWINS` those that pass all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Cube(torch.autograd.Function):
    """x³. Each derivative is made of operators of torch, so that all orders are right."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x**3

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * (3 * x * x).conj()

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 3 * x * x * t


class TangentFromDetached(Cube):
    """The jvp detaches what its own derivative needs."""

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 3 * (x * x).detach() * t


class TangentFromContext(Cube):
    """The jvp reads numbers that forward has put on ctx."""

    @staticmethod
    def forward(ctx, x):
        ctx.slope = 3 * x * x
        return Cube.forward(ctx, x)

    @staticmethod
    def jvp(ctx, t):
        return ctx.slope * t


class TangentOfOneElement(Cube):
    """The jvp is right, but its derivative lacks the first element."""

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        kept = torch.cat([x[:1].detach(), x[1:]])
        return 3 * kept * kept * t


class Slope(torch.autograd.Function):
    """v times the conjugate slope of x³, with a backward pass of its own."""

    @staticmethod
    def forward(ctx, x, v):
        ctx.save_for_backward(x, v)
        return v * (3 * x * x).conj()

    @staticmethod
    def backward(ctx, w):
        x, v = ctx.saved_tensors
        return (w * v.conj()).conj() * (6 * x).conj(), w * 3 * x * x


class SlopeOfDetached(Slope):
    """Its second derivative takes x for a constant."""

    @staticmethod
    def backward(ctx, w):
        x, v = ctx.saved_tensors
        return (w * v.conj()).conj() * (6 * x).conj().detach(), w * 3 * x * x


class SlopeOfDouble(Slope):
    """Its second derivative is right, and has a slope that is twice what it should be."""

    @staticmethod
    def backward(ctx, w):
        x, v = ctx.saved_tensors
        return (w * v.conj()).conj() * (6 * (2 * x - x.detach())).conj(), w * 3 * x * x


def _through(slope: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    class Through(Cube):
        @staticmethod
        def backward(ctx, v):
            (x,) = ctx.saved_tensors
            return slope.apply(x, v)

    return Through


_right, _detached, _double = _through(Slope), _through(SlopeOfDetached), _through(SlopeOfDouble)


def cube(x: Tensor) -> Tensor:
    return Cube.apply(x)


def cube_with_slope(x: Tensor) -> Tensor:
    return _right.apply(x)


def tangent_from_detached(x: Tensor) -> Tensor:
    return TangentFromDetached.apply(x)


def tangent_from_context(x: Tensor) -> Tensor:
    return TangentFromContext.apply(x)


def tangent_of_one_element(x: Tensor) -> Tensor:
    return TangentOfOneElement.apply(x)


def third_detached(x: Tensor) -> Tensor:
    return _detached.apply(x)


def third_doubled(x: Tensor) -> Tensor:
    return _double.apply(x)


def third_of_two(x: Tensor, y: Tensor) -> Tensor:
    return _detached.apply(x) * y


def cube_of_two(x: Tensor, y: Tensor) -> Tensor:
    return _right.apply(x) * y


FAULTS: dict[str, tuple[str, ...]] = {
    "rev_over_fwd": ("tangent_from_detached", "tangent_from_context", "tangent_of_one_element"),
    "rev_over_rev_over_rev": ("third_detached", "third_doubled", "third_of_two"),
}

TWINS = ("cube", "cube_with_slope", "cube_of_two")


def det(x: Tensor) -> Tensor:
    """The determinant of 2 x 2 matrices, whose derivatives are right in every order, unlike those of torch's own."""
    return x[..., 0, 0] * x[..., 1, 1] - x[..., 0, 1] * x[..., 1, 0]
