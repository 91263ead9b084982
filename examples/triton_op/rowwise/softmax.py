"""softmax(x) over rows. A program works on one row, and goes through it in blocks."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rowwise.launching import plain

BLOCK = 16


@triton.jit
def forward_kernel(x_at, y_at, width, SUM: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - max(x)) / sum(exp(x - max(x))). SUM is the precision of the sum."""
    row = tl.program_id(0) * width
    top, total = float("-inf"), 0.0
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_at + row + columns, mask=columns < width, other=float("-inf")).to(tl.float32)
        before, top = top, tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(before - top) + tl.sum(tl.exp(x - top), axis=0)
        total = total.to(SUM).to(tl.float32)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_at + row + columns, mask=columns < width).to(tl.float32)
        tl.store(y_at + row + columns, tl.exp(x - top) / total, mask=columns < width)


@triton.jit
def backward_kernel(y_at, grad_at, dx_at, width, BLOCK: tl.constexpr):
    """dx = y * (grad - sum(y * grad))."""
    row = tl.program_id(0) * width
    total = 0.0
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        y = tl.load(y_at + row + columns, mask=columns < width, other=0.0).to(tl.float32)
        grad = tl.load(grad_at + row + columns, mask=columns < width, other=0.0).to(tl.float32)
        total += tl.sum(y * grad, axis=0)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        y = tl.load(y_at + row + columns, mask=columns < width).to(tl.float32)
        grad = tl.load(grad_at + row + columns, mask=columns < width).to(tl.float32)
        tl.store(dx_at + row + columns, y * (grad - total), mask=columns < width)


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, precision: tl.dtype) -> Tensor:
        x = plain(x)
        y = torch.empty_like(x)
        rows, width = x.shape
        if y.numel():
            forward_kernel[(rows,)](x, y, width, precision, BLOCK)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable  # autograd cannot see into a kernel
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        dx = torch.empty_like(y)
        rows, width = y.shape
        if dx.numel():
            backward_kernel[(rows,)](y, plain(grad), dx, width, BLOCK)
        return dx, None


def softmax(x: Tensor) -> Tensor:
    """The right version: the sum is in single precision, whatever the input is in."""
    return Softmax.apply(x, tl.float32)


def wrong_softmax(x: Tensor) -> Tensor:
    """The wrong version: the sum is in the precision of the input."""
    own = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
    return Softmax.apply(x, own.get(x.dtype, tl.float32))
