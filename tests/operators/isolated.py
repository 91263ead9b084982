"""Operators whose large Jacobians have a single wrong entry, beside right ones."""

import torch
from torch import Tensor


class Cumsum(torch.autograd.Function):
    """The running sum along the first dimension."""

    wrong = 0.0

    @staticmethod
    def forward(ctx, x, dim):
        return x.cumsum(dim)

    @classmethod
    def backward(cls, ctx, v):
        gradient = v.flip(0).cumsum(0).flip(0)
        return torch.cat([gradient[:-1], gradient[-1:] + cls.wrong * v[5]]), None


class WrongCumsum(Cumsum):
    wrong = 0.003


def right_cumsum(x: Tensor, dim: int) -> Tensor:
    """The running sum."""
    return Cumsum.apply(x, dim)


def cumsum(x: Tensor, dim: int) -> Tensor:
    """The same, with one wrong entry of its Jacobian: (5, last)."""
    return WrongCumsum.apply(x, dim)
