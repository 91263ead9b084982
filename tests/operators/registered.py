"""Operators of torch.library: some registered rightly, some whose fake implementation has a wrong shape or stride."""

import torch
from torch import Tensor


@torch.library.custom_op("opcheck_tests::right_half", mutates_args=())
def right_half(x: Tensor) -> Tensor:
    return x / 2


right_half.register_fake(torch.empty_like)
right_half.register_autograd(lambda ctx, v: v / 2)


@torch.library.custom_op("opcheck_tests::wrong_fake", mutates_args=())
def wrong_fake(x: Tensor) -> Tensor:
    return x / 2


wrong_fake.register_fake(lambda x: x.new_empty(x.numel() + 1))
wrong_fake.register_autograd(lambda ctx, v: v / 2)


@torch.library.custom_op("opcheck_tests::half_of_twice_the_gradient", mutates_args=())
def half_of_twice_the_gradient(x: Tensor) -> Tensor:
    return x / 2


half_of_twice_the_gradient.register_fake(torch.empty_like)
half_of_twice_the_gradient.register_autograd(lambda ctx, v: v)


def calls_right_half(x: Tensor) -> Tensor:
    return right_half(x)


def _halved(ctx, v):
    return v.repeat_interleave(2, -1)[..., : ctx.size]


def _keeps_size(ctx, inputs, output):
    ctx.size = inputs[0].shape[-1]


def _sums_of_pairs(x: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(x, (0, x.shape[-1] % 2))
    return (padded[..., ::2] + padded[..., 1::2]).contiguous()


@torch.library.custom_op("opcheck_tests::pairs", mutates_args=())
def pairs(x: Tensor) -> Tensor:
    return _sums_of_pairs(x)


pairs.register_fake(lambda x: x.new_empty(*x.shape[:-1], (x.shape[-1] + 1) // 2))
pairs.register_autograd(_halved, setup_context=_keeps_size)


@torch.library.custom_op("opcheck_tests::pairs_with_fake_of_even", mutates_args=())
def pairs_with_fake_of_even(x: Tensor) -> Tensor:
    return _sums_of_pairs(x)


pairs_with_fake_of_even.register_fake(lambda x: x.new_empty(*x.shape[:-1], x.shape[-1] // 2))
pairs_with_fake_of_even.register_autograd(_halved, setup_context=_keeps_size)


@torch.library.custom_op("opcheck_tests::half_in_any_memory", mutates_args=())
def half_in_any_memory(x: Tensor) -> Tensor:
    return x / 2


half_in_any_memory.register_fake(lambda x: x.new_empty(x.shape))
half_in_any_memory.register_autograd(lambda ctx, v: v / 2)


@torch.library.custom_op("opcheck_tests::sum_of_one_shape", mutates_args=())
def sum_of_one_shape(x: Tensor, y: Tensor) -> Tensor:
    """A twin: that it broadcasts is an accident."""
    return x + y


sum_of_one_shape.register_fake(lambda x, y: torch.empty_like(x))
sum_of_one_shape.register_autograd(lambda ctx, v: (v, v))


def _weighted_rows(x: Tensor, weight: Tensor) -> Tensor:
    return (x * weight).sum(-1)


def _weighted_rows_backward(ctx, v):
    x, weight = ctx.saved_tensors
    rows = (v[..., None] * x).reshape(-1, x.shape[-1])
    return v[..., None] * weight, rows.sum(0)


def _keeps_both(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


weighted_rows = torch.library.custom_op("opcheck_tests::weighted_rows", _weighted_rows, mutates_args=())
weighted_rows.register_fake(lambda x, weight: x.new_empty(x.shape[:-1]))
weighted_rows_of_matrices = torch.library.custom_op("opcheck_tests::of_matrices", _weighted_rows, mutates_args=())
weighted_rows_of_matrices.register_fake(lambda x, weight: x.new_empty(x.shape[0]))
for _rows in (weighted_rows, weighted_rows_of_matrices):
    _rows.register_autograd(_weighted_rows_backward, setup_context=_keeps_both)


def _blocks(x: Tensor) -> Tensor:
    return x.new_zeros(-(-x.numel() // 128))


blocks = torch.library.custom_op("opcheck_tests::blocks", _blocks, mutates_args=())
blocks.register_fake(lambda x: x.new_empty((x.numel() + 127) // 128))
blocks_but_one = torch.library.custom_op("opcheck_tests::blocks_but_one", _blocks, mutates_args=())
blocks_but_one.register_fake(lambda x: x.new_empty((x.numel() - 1) // 128 + 1 if x.numel() else 1))
