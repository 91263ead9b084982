"""Layer norm over rows. A program works on one row, in one block."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from rowwise.launching import plain

EPS = 1e-5


@triton.jit
def forward_kernel(
    x_at, weight_at, bias_at, z_at, scale_at, y_at, width, eps, MASKED: tl.constexpr, BLOCK: tl.constexpr
):
    """z = (x - mean) * scale, y = z * weight + bias. MASKED: whether the variance is that of the row alone."""
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    at, inside = row * width + columns, columns < width
    x = tl.load(x_at + at, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_at + columns, mask=inside).to(tl.float32)
    bias = tl.load(bias_at + columns, mask=inside).to(tl.float32)
    centered = x - tl.sum(x, axis=0) / width
    if MASKED:
        centered = tl.where(inside, centered, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centered * centered, axis=0) / width + eps)
    tl.store(scale_at + row, scale)
    tl.store(z_at + at, centered * scale, mask=inside)
    tl.store(y_at + at, centered * scale * weight + bias, mask=inside)


@triton.jit
def backward_kernel(z_at, scale_at, weight_at, grad_at, dx_at, width, BLOCK: tl.constexpr):
    """dx = scale * (g - mean(g) - z * mean(g * z)) with g = grad * weight."""
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    at, inside = row * width + columns, columns < width
    z = tl.load(z_at + at, mask=inside, other=0.0)
    grad = tl.load(grad_at + at, mask=inside, other=0.0).to(tl.float32)
    g = grad * tl.load(weight_at + columns, mask=inside, other=0.0).to(tl.float32)
    dx = g - tl.sum(g, axis=0) / width - z * (tl.sum(g * z, axis=0) / width)
    tl.store(dx_at + at, tl.load(scale_at + row) * dx, mask=inside)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor, masked: bool) -> Tensor:
        x, weight, bias = plain(x), plain(weight), plain(bias)
        rows, width = x.shape
        if not weight.shape == bias.shape == (width,):
            raise ValueError(f"expected a weight and a bias for each of {width} columns")
        y, z = torch.empty_like(x), torch.empty_like(x, dtype=torch.float32)
        scale = x.new_empty(rows, dtype=torch.float32)
        if y.numel():
            block = triton.next_power_of_2(width)
            forward_kernel[(rows,)](x, weight, bias, z, scale, y, width, EPS, masked, block)
        ctx.save_for_backward(z, scale, weight)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable  # autograd cannot see into a kernel
    def backward(ctx, grad):
        z, scale, weight = ctx.saved_tensors
        dx = torch.empty_like(grad, memory_format=torch.contiguous_format)
        rows, width = dx.shape
        if dx.numel():
            backward_kernel[(rows,)](z, scale, weight, plain(grad), dx, width, triton.next_power_of_2(width))
        dweight, dbias = (grad * z).sum(0), grad.sum(0, dtype=torch.float32)
        return dx, dweight.to(weight.dtype), dbias.to(weight.dtype), None


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The right version: what a block holds beyond the end of the row is no part of the variance."""
    return LayerNorm.apply(x, weight, bias, True)


def wrong_layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The wrong version: each zero beyond the end of the row adds the square of the mean."""
    return LayerNorm.apply(x, weight, bias, False)
