"""The operators that users call: an `autograd.Function` around the kernels, right, and wrong in three ways."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gated import kernels

SIZE = 16
"""Rows and columns of a tile."""
LOW = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


def plain(tensor: Tensor) -> Tensor:
    """Return what a kernel can read: it takes memory as it is."""
    return tensor.resolve_neg().contiguous()


class GatedSoftmax(torch.autograd.Function):
    """softmax(x) * weight, for x of shape (rows, columns) and weight of shape (columns,)."""

    masked = True
    low_sum = False
    every_block = True

    @classmethod
    def accumulator(cls, x):
        return LOW.get(x.dtype, tl.float32) if cls.low_sum else tl.float32

    @classmethod
    def forward(cls, ctx, x, weight):
        x, weight = plain(x), plain(weight)
        ctx.save_for_backward(x, weight)
        y = torch.empty_like(x)
        if y.numel():
            programs = triton.cdiv(len(x), SIZE)
            kernels.forward[(programs,)](x, weight, y, *x.shape, SIZE, cls.accumulator(x))
        return y

    @classmethod
    @torch.autograd.function.once_differentiable  # autograd cannot see into a kernel
    def backward(cls, ctx, v):
        x, weight = ctx.saved_tensors
        programs = triton.cdiv(len(x), SIZE)
        dx, part = torch.empty_like(x), torch.zeros(programs, x.shape[1], dtype=torch.float32, device=x.device)
        if dx.numel():
            kernels.backward[(programs,)](x, weight, plain(v), dx, part, *x.shape, SIZE, cls.accumulator(x), cls.masked)
        part = part if cls.every_block else part[:1]
        return dx, part.sum(0).to(weight.dtype)


class LostMask(GatedSoftmax):
    """The tail is not masked in the backward pass: wrong where the columns are no multiple of a tile's."""

    masked = False


class LossySum(GatedSoftmax):
    """The sum is accumulated in half precision."""

    low_sum = True


class LostBlocks(GatedSoftmax):
    """The gradient of the weight is that of the first block of rows."""

    every_block = False


softmax = GatedSoftmax.apply
lost_mask = LostMask.apply
lossy_sum = LossySum.apply
lost_blocks = LostBlocks.apply
