"""logcosh(x) = log(cosh(x)), a smooth abs, as an operator of `torch.library`."""

import math

import torch
from torch import Tensor


@torch.library.custom_op("softops::logcosh", mutates_args=())
def logcosh(x: Tensor) -> Tensor:
    """The right version."""
    check_real(x)
    return x.abs() + torch.nn.functional.softplus(-2 * x.abs()) - math.log(2)


@torch.library.custom_op("softops::wrong_logcosh", mutates_args=())
def wrong_logcosh(x: Tensor) -> Tensor:
    """The wrong version: its backward has the wrong sign."""
    check_real(x)
    return x.abs() + torch.nn.functional.softplus(-2 * x.abs()) - math.log(2)


def check_real(x: Tensor) -> None:
    if x.is_complex():
        raise TypeError(f"logcosh expects a real tensor, got {x.dtype}")


def save_input(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def backward(ctx, v):
    (x,) = ctx.saved_tensors
    return v * x.tanh()


def wrong_backward(ctx, v):
    (x,) = ctx.saved_tensors
    return -v * x.tanh()


for operator, formula in ((logcosh, backward), (wrong_logcosh, wrong_backward)):
    operator.register_fake(torch.empty_like)
    operator.register_autograd(formula, setup_context=save_input)
    operator.register_vmap(lambda info, in_dims, x, operator=operator: (operator(x), in_dims[0]))
