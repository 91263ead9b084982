"""Faults of second order alone: what the backward pass hides from differentiation."""

from __future__ import annotations

from dataclasses import replace

import torch

from operators.corpus_entries import ONE, SECOND, TWO, Fault, Tensors
from operators.corpus_numbers import PRODUCTS, SQUARE
from operators.faulty import second_order_lost

REVERSE = frozenset({"rev_over_rev"})
FORWARD_OVER = frozenset({"fwd_over_rev"})


def point_detached(x: Tensors, v: Tensors) -> Tensors:
    return (2 * v[0] * x[0].detach().conj(),)


def cotangent_detached(x: Tensors, v: Tensors) -> Tensors:
    return (2 * v[0].detach() * x[0].conj(),)


def all_detached(x: Tensors, v: Tensors) -> Tensors:
    return (2 * v[0].detach() * x[0].detach().conj(),)


def without_a_graph(x: Tensors, v: Tensors) -> Tensors:
    with torch.no_grad():
        return SQUARE.vjp(x, v)


def through_numpy(x: Tensors, v: Tensors) -> Tensors:
    return (v[0] * torch.from_numpy(2 * x[0].detach().resolve_conj().numpy()).conj(),)


def recomputed(x: Tensors, v: Tensors) -> Tensors:
    with torch.enable_grad():
        again = x[0].detach().requires_grad_()
        return torch.autograd.grad(again * again, again, v[0].detach())


def second_input_detached(x: Tensors, v: Tensors) -> Tensors:
    y = x[1].detach().conj()
    return v[0] * x[1].conj(), v[0] * x[0].conj() + 2 * v[1] * y


def cotangent_disturbed(x: Tensors, v: Tensors) -> Tensors:
    # Not by a change of its value, but by one of its derivative.
    return (2 * (v[0] + v[0].abs().detach() - v[0].abs()) * x[0].conj(),)


class OwnDerivativeSaved(torch.autograd.Function):
    """Squares, which saves its derivative for the backward: a number, not a function of the input."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(2 * x)
        ctx.save_for_forward(x)
        return x * x

    @staticmethod
    def backward(ctx, v):
        return v * ctx.saved_tensors[0].conj()

    @staticmethod
    def jvp(ctx, t):
        return 2 * ctx.saved_tensors[0] * t


def lost(name: str, vjp, caught_by=SECOND, **fields) -> Fault:
    return Fault(name=name, function=replace(SQUARE, vjp=vjp), leaves=ONE, caught_by=caught_by, **fields)


FAULTS = (
    lost("point_detached", point_detached),
    lost("cotangent_detached", cotangent_detached),
    lost("point_and_cotangent_detached", all_detached),
    # Forward mode needs no graph, but torch asks for nothing where there is none.
    lost("derivative_without_a_graph", without_a_graph, REVERSE, either=FORWARD_OVER),
    lost("derivative_through_numpy", through_numpy),
    lost("derivative_recomputed_without_a_graph", recomputed),
    lost("derivative_of_the_cotangent_disturbed", cotangent_disturbed),
    Fault(
        name="second_input_detached",
        function=replace(PRODUCTS, vjp=second_input_detached),
        leaves=TWO,
        caught_by=SECOND,
    ),
    Fault(
        name="derivative_saved_as_an_attribute",
        function=lambda x: (second_order_lost(x),),
        leaves=ONE,
        caught_by=REVERSE,
        disclaims=frozenset({"forward_ad", "fwd_over_rev"}),
    ),
    Fault(
        name="derivative_saved_as_an_intermediate",
        function=lambda x: (OwnDerivativeSaved.apply(x),),
        leaves=ONE,
        caught_by=SECOND,
    ),
)
