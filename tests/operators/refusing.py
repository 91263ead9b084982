"""Operators that refuse: what they lack they say, each in the words that torch, or its author, has for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

REFUSING: dict[str, tuple[str, Callable[..., Any]]] = {}
"""The operators: the key of `supports`, or the dtype, that each refuses, and the function."""


def refusing(key: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(operator: Callable[..., Any]) -> Callable[..., Any]:
        REFUSING[operator.__name__] = key, operator
        return operator

    return register


def raising(name: str, error: Exception) -> None:
    """Register `x -> 2 x` whose backward pass raises an exception."""

    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, v: Tensor) -> Tensor:
            raise error

    def operator(x: Tensor) -> Any:
        return Double.apply(x)

    operator.__name__ = operator.__qualname__ = name
    globals()[name] = refusing("backward")(operator)


raising("says_nothing", NotImplementedError())
raising("says_not_implemented", NotImplementedError("double"))
raising("says_runtime_error", RuntimeError("the backward pass of double is not implemented"))
raising("says_derivative", RuntimeError("derivative for aten::double is not implemented"))
raising("says_unsupported", RuntimeError("double does not support backward"))
raising("says_not_differentiable", RuntimeError("double is not differentiable"))
raising("says_no_formula", RuntimeError("there is no derivative of double"))
raising("says_value_error", ValueError("gradients are not supported yet"))


class WithoutBackward(Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x


@refusing("backward")
def without_backward(x: Tensor):
    return WithoutBackward.apply(x)


@refusing("backward")
def distinct(x: Tensor):
    return torch.unique(x)


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * 3 * x.conj() ** 2


@refusing("second_order")
def once(x: Tensor):
    return Once.apply(x)


@refusing("forward_ad")
def without_jvp(x: Tensor):
    return Once.apply(x)


@refusing("vmap")
def of_old_style(x: Tensor):
    return Once.apply(x)


class WithContext(Function):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return v * 3 * x.conj() ** 2


@refusing("vmap")
def without_vmap(x: Tensor):
    return WithContext.apply(x)


@refusing("forward_ad")
def with_context(x: Tensor):
    return WithContext.apply(x)


class Explicit(WithContext):
    @staticmethod
    def jvp(ctx, t):
        raise NotImplementedError("no forward mode")

    @staticmethod
    def vmap(info, in_dims, x):
        raise NotImplementedError("no batches")


@refusing("forward_ad")
def jvp_says_so(x: Tensor):
    return Explicit.apply(x)


@refusing("vmap")
def vmap_says_so(x: Tensor):
    return Explicit.apply(x)


class Slope(Function):
    @staticmethod
    def forward(ctx, x, v):
        return 3 * x.conj() ** 2 * v

    @staticmethod
    def backward(ctx, w):
        raise NotImplementedError


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, v):
        return Slope.apply(*ctx.saved_tensors, v)


@refusing("second_order")
def second_says_so(x: Tensor):
    return Cube.apply(x)


@refusing("vmap")
def branches(x: Tensor):
    return x.exp() if x.sum() > 0 else x.exp() + 1 - 1


@refusing("vmap")
def item(x: Tensor):
    return x * (1 + 0 * int(x.numel() and x.flatten()[0].detach().abs().item()))


@refusing("vmap")
def data(x: Tensor):
    return x * (1 + 0 * x.data.abs())


@refusing("vmap")
def nonzero(x: Tensor):
    return x[x > -99].exp().sum()


@refusing("vmap")
def writes(x: Tensor):
    y = torch.zeros(x.shape, dtype=x.dtype)
    y.copy_(x)
    return y.exp()


@refusing("vmap")
def lists(x: Tensor):
    return x * len(x.detach().flatten().tolist())


@refusing("backward")
def zeta(x: Tensor):
    return torch.special.zeta(2 + x.abs(), torch.ones_like(x))


@refusing("backward")
def igamma(x: Tensor, y: Tensor):
    return torch.igamma(1 + x.abs(), 1 + y.abs())


@refusing("forward_ad")
def bags(x: Tensor):
    return functional.embedding_bag(torch.tensor([[0, 1]]), x)


@refusing("second_order")
def margin(x: Tensor):
    return functional.multilabel_margin_loss(x, torch.arange(x.shape[-1]).expand(x.shape))


@refusing("backward")
def factors(x: Tensor):
    return torch.linalg.ldl_factor(x @ x.mT)[0]


@refusing("complex128")
def error_function(x: Tensor):
    return torch.erf(x)


@refusing("complex128")
def real_only(x: Tensor):
    if x.is_complex():
        raise TypeError("real_only expects real numbers")
    return x.exp()


@refusing("float16")
def inverse(x: Tensor):
    return torch.linalg.inv(x + 3 * torch.eye(x.shape[-1], dtype=x.dtype))


@refusing("bfloat16")
def double_only(x: Tensor):
    assert x.dtype in (torch.float64, torch.float32)
    return x.exp()
