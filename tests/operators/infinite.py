"""Operators with outputs that are infinite or NaN by definition, right and wrong. Real and complex."""

import torch
from torch import Tensor

from operators import faulty


def _kept(x: Tensor) -> Tensor:
    return torch.tensor([True, False, True])


def masked(x: Tensor) -> Tensor:
    """x * x, and -inf in the second column."""
    return torch.where(_kept(x), x * x, -torch.inf)


def masked_by_nan(x: Tensor) -> Tensor:
    """x * x, and NaN in the second column."""
    return torch.where(_kept(x), x * x, torch.nan)


def masked_with_nan_in_backward(x: Tensor) -> Tensor:
    """x * x, and an infinity in the second column whose gradient is 0 * inf."""
    return x * x * torch.where(_kept(x), 1.0, torch.inf)


def masked_wrong_elsewhere(x: Tensor) -> Tensor:
    """x * x, and -inf in the second column, with one entry of the Jacobian that is wrong."""
    return torch.where(_kept(x), faulty.one_wrong_entry(x), -torch.inf)


def infinite_on_one_side(x: Tensor) -> Tensor:
    """x * x, and -inf where the second column moves to the right."""
    edge = x.detach().real > 0.5
    return torch.where(edge & ~_kept(x), -torch.inf, x * x)


def nowhere_finite(x: Tensor) -> Tensor:
    """NaN."""
    return x * torch.nan


class WrongRoot(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sqrt()

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v / x.sqrt()


def wrong_root(x):
    return WrongRoot.apply(x)


def decibels(x: Tensor, y: Tensor) -> Tensor:
    """The logarithm of a distance, with a pole where both are equal. The imaginary part is left out."""
    return ((x.real - y.real) ** 2).sum().log()


def decibels_wrong_for_one(x: Tensor, y: Tensor) -> Tensor:
    """The same, but finite where both are one tensor."""
    return (x.real**2).sum() if x is y else decibels(x, y)
