"""Kernels without a derivative, and kernels of half precision only: right ones, and ones that leave out a tail."""

import numpy as np
import torch
from torch import Tensor


def _signs(x: Tensor, count: int) -> Tensor:
    signs = torch.zeros_like(x)
    signs[..., :count] = x.detach()[..., :count].sgn()
    return signs


def signs(x: Tensor) -> Tensor:
    return _signs(x, x.shape[-1])


def signs_of_blocks(x: Tensor) -> Tensor:
    """Leave out what follows the last block of 4, if there is a block."""
    return _signs(x, x.shape[-1] // 4 * 4 or x.shape[-1])


def is_greater(x: Tensor, y: Tensor) -> Tensor:
    """Compare tensors of equal shapes. Like many kernels, it takes sizes from the first, and refuses no others."""
    greater = torch.zeros_like(x, dtype=torch.bool)
    greater[:] = (x.detach() > y.detach())[tuple(slice(size) for size in x.shape)]
    return greater


def signs_by_numpy(x: Tensor) -> Tensor:
    """Refuse tensors that require grad, as NumPy does."""
    return torch.from_numpy(np.asarray(np.sign(x.numpy())))


class Scale(torch.autograd.Function):
    """x w in half precision, of rows and columns up to a number of each."""

    @staticmethod
    def forward(ctx, x, w, columns, rows):
        if x.dtype not in (torch.float16, torch.bfloat16):
            raise NotImplementedError(f"no kernel for {x.dtype}")
        ctx.save_for_backward(x, w)
        ctx.rows = rows
        y = torch.zeros_like(x)
        y[..., :columns] = (x.float() * w.float()).to(x.dtype)[..., :columns]
        return y

    @staticmethod
    def backward(ctx, v):
        x, w = ctx.saved_tensors
        of_w = (v.float() * x.float()).flatten(0, -2)[: ctx.rows].sum(0)
        return (v.float() * w.float()).to(x.dtype), of_w.to(w.dtype), None, None


def scale(x: Tensor, w: Tensor) -> Tensor:
    return Scale.apply(x, w, x.shape[-1], x.numel())


def scale_of_blocks(x: Tensor, w: Tensor) -> Tensor:
    return Scale.apply(x, w, x.shape[-1] // 4 * 4 or x.shape[-1], x.numel())


def scale_of_eight_rows(x: Tensor, w: Tensor) -> Tensor:
    """In the gradient of w, add up the first eight rows only."""
    return Scale.apply(x, w, x.shape[-1], 8)


@torch.library.custom_op("opcheck_tests::rounded", mutates_args=())
def rounded(x: Tensor) -> Tensor:
    return x.round()


rounded.register_fake(torch.empty_like)


@torch.library.custom_op("opcheck_tests::rounded_in_blocks", mutates_args=())
def rounded_in_blocks(x: Tensor) -> Tensor:
    return x.round()


rounded_in_blocks.register_fake(lambda x: x.new_empty(*x.shape[:-1], x.shape[-1] if x.shape[-1] < 4 else 4))


@torch.library.custom_op("opcheck_tests::rounded_to_float32", mutates_args=())
def rounded_to_float32(x: Tensor) -> Tensor:
    """In half precision, the result is in float32, which the fake implementation does not know."""
    return x.to(torch.promote_types(x.dtype, torch.float32)).round()


rounded_to_float32.register_fake(torch.empty_like)
