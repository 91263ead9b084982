"""Gradients of Python functions are seen as they are returned, before autograd casts them."""

import torch

from opcheck.checks.raw_gradients import raw_gradients


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor, y, constant):
        ctx.save_for_backward(x, y)
        return x * y * factor + constant

    @staticmethod
    def backward(ctx, v):
        x, y = ctx.saved_tensors
        return (v * y * 2).float(), None, v * x * 2, None


def leaves():
    return [torch.ones(2, dtype=torch.float64, requires_grad=True) for _ in range(2)]


def test_the_dtype_that_was_returned_stands_beside_the_one_expected():
    x, y = leaves()
    found = raw_gradients((Product.apply(x, 2.0, y, torch.ones(2)),), (x, y))
    assert [(raw.position, raw.gradient.dtype, raw.dtype) for raw in found] == [
        (0, torch.float32, torch.float64),
        (2, torch.float64, torch.float64),
    ]


def test_arguments_without_a_gradient_come_between():
    y = leaves()[1]
    found = raw_gradients((Product.apply(torch.ones(2), 2.0, y, torch.ones(2)),), (y,))
    assert [(raw.position, raw.dtype) for raw in found] == [(2, torch.float64)]


def test_functions_behind_other_operations_are_found():
    x, y = leaves()
    output = Product.apply(x.sin(), 2.0, y, torch.ones(2)).sum()
    found = raw_gradients((output,), (x, y))
    assert [raw.position for raw in found] == [0, 2]
    assert found[0].dtype == torch.float64


class Boxed(torch.autograd.Function):
    boxed_grads_call = True  # since torch 2.14: the cotangents come in a list

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, given):
        (v,) = given if isinstance(given, list) else (given,)
        return (v * 2).float()


def test_functions_that_take_their_cotangents_as_a_list_are_seen_too():
    x, _ = leaves()
    (raw,) = raw_gradients((Boxed.apply(x),), (x,))
    assert (raw.function, raw.gradient.dtype, raw.dtype) == ("BoxedBackward", torch.float32, torch.float64)


def test_autograd_itself_hides_the_wrong_dtype():
    x, y = leaves()
    (gradient, _) = torch.autograd.grad(Product.apply(x, 2.0, y, torch.ones(2)).sum(), (x, y))
    assert gradient.dtype == torch.float64


def test_a_graph_without_python_functions_gives_nothing():
    x, y = leaves()
    assert raw_gradients((x * y,), (x, y)) == []
