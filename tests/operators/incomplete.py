"""Right operators that lack something each: forward mode, a batching rule, a second derivative, a modern form."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def _made(arity: int, modern: bool, jvp: bool, rule: bool, twice: bool, materialize: bool):
    """Return the product of its inputs, or the square of its only one, as an autograd function."""

    def slopes(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (2 * inputs[0],) if arity == 1 else (inputs[1], inputs[0])

    def keep(ctx, inputs):
        ctx.set_materialize_grads(materialize)
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    def value(*inputs):
        return inputs[0] * inputs[-1]

    def backward(ctx, v):
        found = tuple(None if v is None else v * slope.conj() for slope in slopes(ctx.saved_tensors))
        return found if arity > 1 else found[0]

    def forward_with_context(ctx, *inputs):
        keep(ctx, inputs)
        return value(*inputs)

    members = {
        "backward": staticmethod(backward if twice else once_differentiable(backward)),
        "generate_vmap_rule": rule,
    }
    if modern:
        members |= {
            "forward": staticmethod(value),
            "setup_context": staticmethod(lambda ctx, inputs, _: keep(ctx, inputs)),
        }
    else:
        members |= {"forward": staticmethod(forward_with_context)}
    if jvp:
        members["jvp"] = staticmethod(
            lambda ctx, *tangents: sum(
                slope * t for slope, t in zip(slopes(ctx.saved_tensors), tangents, strict=True) if t is not None
            )
        )
    function = type("Incomplete", (torch.autograd.Function,), members)
    return (lambda x: function.apply(x)) if arity == 1 else (lambda x, y: function.apply(x, y))


class Functions(SimpleNamespace):
    """Of this module, as what a spec names has to be."""


def _all():
    for arity, modern, jvp, twice, materialize in product(
        (1, 2), (False, True), (False, True), (False, True), (True, False)
    ):
        name = "_".join(
            [
                "square" if arity == 1 else "product", "modern" if modern else "old", "with_jvp" if jvp else "no_jvp",
                "twice" if twice else "once", "zeros" if materialize else "undefined",
            ]
        )  # fmt: skip
        yield name, _made(arity, modern, jvp, modern and twice, twice, materialize)


functions = Functions(**dict(_all()))
NAMES = tuple(vars(functions))
