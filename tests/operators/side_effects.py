"""Functions that do more than return a value: they write to their inputs, to what they captured, to what they saved.

`ONE` and `TWO` have those of one and of two inputs by name. Some are right all the same.
"""

from __future__ import annotations

import random
from typing import ClassVar

import numpy
import torch
from torch import Tensor


def adds_to_data_after_exp(x):
    y = x.exp()
    x.data.add_(1.0)
    return y


def adds_to_data_after_square(x):
    y = x * x
    x.data.add_(1.0)
    return y


def adds_to_data_before(x):
    x.data.add_(1.0)
    return x * x


def adds_to_data_after_double(x):
    y = 2 * x
    x.data.add_(1.0)
    return y


def changes_and_restores_before(x):
    with torch.no_grad():
        x.add_(1.0)
        x.sub_(1.0)
    return x * x


def changes_and_restores_after(x):
    y = x * x
    with torch.no_grad():
        x.mul_(2.0)
        x.div_(2.0)
    return y


def changes_and_restores_after_exp(x):
    y = x.exp()
    with torch.no_grad():
        x.mul_(2.0)
        x.div_(2.0)
    return y


def adds_without_grad(x):
    y = x.exp()
    with torch.no_grad():
        x.add_(1.0)
    return y


def scales_a_detached_input(x):
    y = x.sin()
    x.detach().mul_(1.5)
    return y


def writes_by_numpy(x):
    y = x * x
    x.detach().numpy()[...] += 1
    return y


def returns_its_input(x):
    return x


def returns_a_view(x):
    return x.view(-1)


def returns_one_twice(x):
    y = x * 2
    return y, y


def replaces_its_data_by_a_copy(x):
    y = x * x
    x.data = x.data.clone()
    return y


def replaces_its_data(x):
    y = x * x
    x.data = x.data + 1
    return y


def clears_its_grad(x):
    x.grad = None
    return x.exp()


def writes_to_a_clone(x):
    return x.clone().mul_(x)


def returns_empty_slices(x):
    return x[:0] * 1, x[:0] * 2


class Scratch:
    """Memory that all calls share."""

    memory: ClassVar[dict[torch.dtype, Tensor]] = {}

    @classmethod
    def like(cls, x: Tensor) -> Tensor:
        return cls.memory.setdefault(x.dtype, torch.ones_like(x.detach()))


def multiplies_by_scratch(x):
    buffer = Scratch.like(x)
    buffer.copy_(x.detach())
    return x * buffer


def multiplies_by_the_real_part(x):
    buffer = Scratch.like(x)
    buffer.copy_(x.detach().real)
    return x * buffer


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x


class WritesToInputInBackward(Square):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        gradient = g * 2 * x.conj()
        x.data.add_(1.0)
        return gradient


class WritesToCotangent(Square):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        gradient = g * 2 * x.conj()
        g.data.mul_(2)
        return gradient


class WritesToSaved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(2 * x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (slope,) = ctx.saved_tensors
        return slope.detach().data.conj_physical_().mul_(g)


def writes_to_its_input_in_backward(x):
    return WritesToInputInBackward.apply(x)


def writes_to_the_cotangent(x):
    return WritesToCotangent.apply(x)


def writes_to_what_it_saved(x):
    return WritesToSaved.apply(x)


def writes_to_the_second(x, y):
    z = x * y
    y.data.add_(1.0)
    return z


def writes_to_the_second_after_exp(x, y):
    z = x.exp() + y.exp()
    y.data.add_(1.0)
    return z


def swaps_its_inputs(x, y):
    z = x.exp() - 2 * y.exp()
    x.data, y.data = y.data, x.data
    return z


class RandomTimes(torch.autograd.Function):
    """x times random numbers, which backward draws again from the state of the generator in forward."""

    @staticmethod
    def forward(ctx, x, restores):
        ctx.state, ctx.restores = torch.get_rng_state(), restores
        return x * torch.rand(x.shape)

    @staticmethod
    def backward(ctx, v):
        before = torch.get_rng_state()
        torch.set_rng_state(ctx.state)
        gradient = v * torch.rand(v.shape)
        if ctx.restores:
            torch.set_rng_state(before)
        return gradient, None


def restores_the_generator(x):
    return RandomTimes.apply(x, True)


def sets_the_generator_back(x):
    """Wrong: later numbers repeat those that were drawn after forward."""
    return RandomTimes.apply(x, False)


class HostTimes(torch.autograd.Function):
    """x times random numbers of Python and NumPy."""

    @staticmethod
    def forward(ctx, x, again):
        factor = random.random() + numpy.random.rand()
        ctx.factor = None if again else factor
        return x * factor

    @staticmethod
    def backward(ctx, v):
        return v * (random.random() + numpy.random.rand() if ctx.factor is None else ctx.factor), None


def draws_by_the_host(x):
    return HostTimes.apply(x, False)


def draws_by_the_host_again(x):
    """Wrong: backward draws other numbers than forward."""
    return HostTimes.apply(x, True)


ONE = {
    function.__name__: function
    for function in (
        adds_to_data_after_exp, adds_to_data_after_square, adds_to_data_before, adds_to_data_after_double,
        changes_and_restores_before, changes_and_restores_after, changes_and_restores_after_exp, adds_without_grad,
        scales_a_detached_input, writes_by_numpy, returns_its_input, returns_a_view, returns_one_twice,
        replaces_its_data_by_a_copy, replaces_its_data, clears_its_grad, writes_to_a_clone, returns_empty_slices,
        multiplies_by_scratch, multiplies_by_the_real_part, writes_to_its_input_in_backward, writes_to_the_cotangent,
        writes_to_what_it_saved,
    )
}  # fmt: skip
TWO = {
    function.__name__: function for function in (writes_to_the_second, writes_to_the_second_after_exp, swaps_its_inputs)
}


def takes_out_of_a_mapping(given):
    return given.pop("q") * given["k"]


def takes_from_a_mapping(given):
    return given["q"] * given["k"]


def sorts_its_dims(x, dims):
    dims.sort(reverse=True)
    for dim in dims:
        x = x.sum(dim)
    return x


def sums_over_sorted_dims(x, dims):
    return x.sum(sorted(dims, reverse=True))


def replaces_an_item(items):
    items[0] = 2 * items[0]
    return items[0] * items[1]


def uses_another_list(items):
    items = [2 * items[0], items[1]]
    return items[0] * items[1]


def adds_an_item(items):
    items.append(items[0] * items[1])
    return items[-1]


_KEPT: list[float] = []


def grows_with_each_call(x):
    """It is smooth, and another function in each call."""
    _KEPT.append(1.0)
    return x * sum(_KEPT)


def gate_in_place_for_inference(x, w):
    """Where no gradient is wanted, it saves memory at the expense of its argument."""
    return (x * w).sigmoid() if torch.is_grad_enabled() else x.mul_(w).sigmoid()


def gate(x, w):
    return (x * w).sigmoid() if torch.is_grad_enabled() else x.mul(w).sigmoid_()
