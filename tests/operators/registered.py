"""Operators of torch.library: one registered rightly, one whose fake implementation has the wrong shape."""

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
