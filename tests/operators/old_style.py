"""Functions whose `forward` takes ctx first, with no `setup_context`: x² and the like, as most people still write them.

`RIGHT` has right ones by name; `WRONG` their wrong twins, with the check that each must fail under.
"""

from __future__ import annotations

from ctypes import string_at

import torch
from torch.autograd.function import once_differentiable


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x.conj()


class SquareWithTangent(Square):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x * x

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 2 * x * t


class KeepsOnContext(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor=3.0):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None

    @staticmethod
    def jvp(ctx, t, *_):
        return t * ctx.factor


class TwoOutputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * y.conj() + h, g * x.conj() + h

    @staticmethod
    def jvp(ctx, t, u):
        x, y = ctx.saved_tensors
        return t * y + x * u, t + u


class Once(Square):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x.conj()


class WithSigns(torch.autograd.Function):
    """x² and, beside it, what has no derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        signs = x.real > 1
        ctx.mark_non_differentiable(signs)
        return x * x, signs

    @staticmethod
    def backward(ctx, g, _):
        (x,) = ctx.saved_tensors
        return g * 2 * x.conj()


class WrongSign(SquareWithTangent):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return -g * 2 * x.conj()


class WrongTangent(SquareWithTangent):
    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 3 * x * t


RIGHT = {
    "Square": ("{ shape = [3], low = 0.5 }", "forward_ad = false"),
    "SquareWithTangent": ("{ shape = [3], low = 0.5 }", ""),
    "KeepsOnContext": ("{ shape = [3], low = 0.5 }", ""),
    "TwoOutputs": ("{ shape = [3], low = 0.5 }, { shape = [3], low = 0.5 }", ""),
    "Once": ("{ shape = [3], low = 0.5 }", "forward_ad = false, second_order = false"),
    "WithSigns": ("{ shape = [3], low = 1.5 }", "forward_ad = false"),
}
"""The arguments of each, and what it does not support."""
WRONG = {"WrongSign": "backward", "WrongTangent": "forward_ad"}


class ReadsMemory(Square):
    """x², whose backward pass is a kernel: it reads the memory of its cotangent, which it takes for its values."""

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        g = g.contiguous()
        raw = torch.frombuffer(bytearray(_bytes(g)), dtype=g.dtype).reshape(g.shape)
        return raw * 2 * x.conj()


def _bytes(x: torch.Tensor) -> bytes:
    """Return what is in the memory of a contiguous tensor."""
    return string_at(x.data_ptr(), x.numel() * x.element_size())
