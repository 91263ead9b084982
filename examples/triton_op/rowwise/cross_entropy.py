"""The mean cross entropy of rows of logits, fused: the forward pass stores the gradient, too."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rowwise.launching import plain

IGNORED = -100
"""The label of rows that do not count."""


@triton.jit
def kernel(x_at, target_at, loss_at, dx_at, width, ignored, BLOCK: tl.constexpr):
    """loss = log(sum(exp(x))) - x[target], and its gradient, softmax(x) - 1[target]; zeros if the row is ignored."""
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    at, inside = row * width + columns, columns < width
    target = tl.load(target_at + row)
    x = tl.load(x_at + at, mask=inside, other=float("-inf")).to(tl.float32)
    x -= tl.max(x, axis=0)
    log_sum = tl.log(tl.sum(tl.exp(x), axis=0))
    hit = columns == target
    loss = log_sum - tl.sum(tl.where(hit, x, 0.0), axis=0)
    dx = tl.exp(x - log_sum) - tl.where(hit, 1.0, 0.0)
    tl.store(loss_at + row, tl.where(target == ignored, 0.0, loss))
    tl.store(dx_at + at, tl.where(target == ignored, 0.0, dx), mask=inside)


class CrossEntropy(torch.autograd.Function):
    """counts_all: whether the gradient is divided by the number of all rows, not of those that count."""

    @staticmethod
    def forward(ctx, x: Tensor, target: Tensor, counts_all: bool) -> Tensor:
        x, target = plain(x), plain(target)
        rows, width = x.shape
        loss, dx = x.new_empty(rows, dtype=torch.float32), torch.empty_like(x)
        if dx.numel():
            kernel[(rows,)](x, target, loss, dx, width, IGNORED, triton.next_power_of_2(width))
        count = (target != IGNORED).sum()
        ctx.save_for_backward(dx)
        ctx.count = rows if counts_all else count
        return (loss.sum() / count).to(x.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable  # autograd cannot see into a kernel
    def backward(ctx, grad):
        (dx,) = ctx.saved_tensors
        return dx * (grad / ctx.count), None, None


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    """The right version: the mean is over the rows that count, forward and backward."""
    return CrossEntropy.apply(x, target, False)


def wrong_cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    """The wrong version: rows that are ignored make the gradient of the others smaller."""
    return CrossEntropy.apply(x, target, True)
