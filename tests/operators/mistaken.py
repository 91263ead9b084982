"""Operators whose forward works and whose derivatives raise by mistake: none says that it is not implemented."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

MISTAKEN: dict[str, Callable[..., Any]] = {}
"""The operators whose backward pass raises, or returns what is wrong."""
ELSEWHERE: dict[str, tuple[str, Callable[..., Any]]] = {}
"""Those with a mistake in another derivative: its key of `supports`, and the operator."""


def mistaken(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return `x -> 2 x` with a backward pass."""

    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            ctx.table = {}
            return 2 * x

    Double.backward = staticmethod(backward)  # type: ignore[method-assign]

    def operator(x: Tensor) -> Any:
        return Double.apply(x)

    operator.__name__ = operator.__qualname__ = backward.__name__
    MISTAKEN[backward.__name__] = operator
    return operator


@mistaken
def unknown_name_in_backward(ctx, v):
    return 2 * cotangent  # noqa: F821


class MatMul(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, v):
        a, b = ctx.saved_tensors
        return v @ b, a.mT @ v  # b.mT


def transposed(a: Tensor, b: Tensor):
    assert a.shape[-1] != b.shape[-1]
    return MatMul.apply(a, b)


MISTAKEN["transposed"] = transposed


class Product(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, v):
        return v * ctx.saved_tensors[1]  # and nothing for y


def too_few(x: Tensor, y: Tensor):
    return Product.apply(x, y)


MISTAKEN["too_few"] = too_few


class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, v):
        return v * ctx.saved_tensors[0]


def spoiled(x: Tensor):
    return Exp.apply(x).mul_(2)  # what backward needs


MISTAKEN["spoiled"] = spoiled


def hooked(x: Tensor):
    def hook(v):
        raise RuntimeError("the sizes differ")

    y = 2 * x
    if y.requires_grad:
        y.register_hook(hook)
    return y


MISTAKEN["hooked"] = hooked


@mistaken
def too_many(ctx, v):
    return 2 * v, 2 * v


@mistaken
def of_another_shape(ctx, v):
    return 2 * v.new_ones(7, 5)


@mistaken
def index_out_of_range(ctx, v):
    return 2 * v[..., 100]


@mistaken
def second_saved(ctx, v):
    return v * ctx.saved_tensors[1]


@mistaken
def attribute_of_ctx(ctx, v):
    return ctx.scale * v


@mistaken
def asserts(ctx, v):
    assert v.dim() == 7
    return 2 * v


@mistaken
def asserts_with_words(ctx, v):
    assert v.dim() == 7, "only 7 dimensions are supported"
    return 2 * v


@mistaken
def unpacks(ctx, v):
    x, y = ctx.saved_tensors
    return x + y * v


@mistaken
def key_of_table(ctx, v):
    return ctx.table["scale"] * v


@mistaken
def no_such_name(ctx, v):
    return scale * v  # noqa: F821


@mistaken
def none_times(ctx, v):
    return ctx.table.get("scale") * v


@mistaken
def method_of_none(ctx, v):
    return ctx.table.get("scale").mul(v)


@mistaken
def before_it_is_set(ctx, v):
    if v.dim() > 7:
        scale = 2
    return scale * v


@mistaken
def divides_by_zero(ctx, v):
    return v * (2 / len(ctx.table))


@mistaken
def raises_value_error(ctx, v):
    raise ValueError("operands could not be broadcast together")


@mistaken
def views(ctx, v):
    return 2 * v.reshape(-1, 7, 11)


@mistaken
def gathers(ctx, v):
    return 2 * v.gather(7, torch.zeros_like(v, dtype=torch.int64))


@mistaken
def returns_text(ctx, v):
    return "2 * v"


@mistaken
def returns_a_number(ctx, v):
    return 2.0


@mistaken
def other_dtype(ctx, v):
    (x,) = ctx.saved_tensors
    return 2 * (v.float().flatten() @ x.double().flatten()) * v


@mistaken
def concatenates(ctx, v):
    return torch.cat([v.reshape(1, -1), v.new_ones(2, 77)])


@mistaken
def einsum(ctx, v):
    return torch.einsum("abcdefg,g->abcdef", v, v)


@mistaken
def stops(ctx, v):
    return next(iter(ctx.table))


@mistaken
def unknown_keyword(ctx, v):
    return torch.mul(v, 2, scale=3)


@mistaken
def unpicked(ctx, v):
    (x,) = ctx.saved_tensors
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        y = (leaf**2).sum()
        torch.autograd.grad(y, leaf)
        return torch.autograd.grad(y, leaf)[0] + 2 * v


class WrongJvp(Function):
    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = 2

    @staticmethod
    def backward(ctx, v):
        return 2 * v

    @staticmethod
    def jvp(ctx, t):
        return ctx.scale * t


def mistaken_jvp(x: Tensor):
    return WrongJvp.apply(x)


ELSEWHERE["mistaken_jvp"] = ("forward_ad", mistaken_jvp)


class WrongVmap(Function):
    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, v):
        return 2 * v

    @staticmethod
    def vmap(info, in_dims, x):
        return WrongVmap.apply(x), in_dims[7]


def mistaken_vmap(x: Tensor):
    return WrongVmap.apply(x)


ELSEWHERE["mistaken_vmap"] = ("vmap", mistaken_vmap)


class Slope(Function):
    @staticmethod
    def forward(ctx, x, v):
        ctx.save_for_backward(x, v)
        return 3 * x**2 * v

    @staticmethod
    def backward(ctx, w):
        x, v = ctx.saved_tensors
        return 6 * x * v * w  # and nothing for v


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, v):
        return Slope.apply(*ctx.saved_tensors, v)


def mistaken_twice(x: Tensor):
    return Cube.apply(x)


ELSEWHERE["mistaken_twice"] = ("second_order", mistaken_twice)
globals().update(MISTAKEN)
