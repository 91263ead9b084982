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


def masked(x: Tensor) -> Tensor:
    """Keep the lower triangle, to the last column of the last row."""
    return x.detach().tril(x.shape[-1] - x.shape[-2])


def masked_as_square(x: Tensor) -> Tensor:
    return x.detach().tril()


def causal(x: Tensor) -> Tensor:
    """The reference of both."""
    rows, columns = x.shape[-2:]
    return x * (torch.arange(columns) <= torch.arange(rows)[:, None] + columns - rows)


def bucket(x: Tensor, right: bool = False) -> Tensor:
    """Return how many of the edges -1, 0, 1 are below x, or not above it."""
    edges, x = torch.tensor([-1.0, 0.0, 1.0], dtype=x.dtype), x.detach()[..., None]
    return ((edges <= x) if right else (edges < x)).sum(-1)


def bucket_of_one_side(x: Tensor, right: bool = False) -> Tensor:
    return bucket(x)


def positions_of_largest(x: Tensor) -> Tensor:
    """Of equal numbers, the position of the last."""
    return x.shape[-1] - 1 - x.detach().flip(-1).argmax(-1)


def softmax_of_product(x: Tensor, y: Tensor) -> Tensor:
    """Compute in single precision. A function of torch rounds the product to half precision."""
    if x.dtype not in (torch.float16, torch.bfloat16):
        raise NotImplementedError(f"no kernel for {x.dtype}")
    return (x.detach().float() @ y.detach().float()).softmax(-1).to(x.dtype)


def softmax_of_tanh(x: Tensor, y: Tensor) -> Tensor:
    """Limit the product to between -4 and 4."""
    return (4 * torch.tanh(x.detach().float() @ y.detach().float() / 4)).softmax(-1).to(x.dtype)


def eager_softmax_of_product(x: Tensor, y: Tensor) -> Tensor:
    return (x @ y).softmax(-1)


def whole(x: Tensor) -> Tensor:
    return x.detach().round()


def best(x: Tensor) -> Tensor:
    return x.detach().argmax(-1)


def best_but_one(x: Tensor) -> Tensor:
    """Beyond 200, the position is off by one, which is within the rounding of bfloat16."""
    return best(x) + (best(x) > 200)


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


class ScaleByMemory(Scale):
    """Read the cotangent as if it were contiguous."""

    @staticmethod
    def backward(ctx, v):
        plain = torch.empty(v.shape, device="meta").stride()
        return Scale.backward(ctx, v.as_strided(v.shape, plain) if v.numel() else v)


def scale_by_memory(x: Tensor, w: Tensor) -> Tensor:
    return ScaleByMemory.apply(x, w, x.shape[-1], x.numel())


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


@torch.library.custom_op("opcheck_tests::rounded_in_place", mutates_args=())
def rounded_in_place(x: Tensor) -> Tensor:
    """Clear the input if it has more than 16 columns."""
    y = x.round()
    if x.shape[-1] > 16:
        x.zero_()
    return y


rounded_in_place.register_fake(torch.empty_like)


@torch.library.custom_op("opcheck_tests::plain_in_half", mutates_args=())
def plain_in_half(x: Tensor) -> Tensor:
    """In half precision, it has no derivative and refuses tensors that require grad. The fake result is in float32."""
    if x.requires_grad and x.dtype is torch.bfloat16:
        raise NotImplementedError("no derivative in bfloat16")
    return x * 2


plain_in_half.register_fake(
    lambda x: torch.empty_like(x, dtype=torch.float32 if x.dtype is torch.bfloat16 else x.dtype)
)
plain_in_half.register_autograd(lambda ctx, v: v * 2)
