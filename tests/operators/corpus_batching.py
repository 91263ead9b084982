"""Faults that show under vmap only: derivatives that cannot be batched, and batching rules that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from operators.corpus_entries import ONE, Fault, Formula, Tensors
from operators.corpus_numbers import SQUARE

GRAD, FORWARD_GRAD = frozenset({"batched_grad"}), frozenset({"batched_forward_grad"})
VMAP = frozenset({"vmap"})


# Derivatives that look at values, which vmap refuses, or that take the refusal for an answer


def looking(v: Tensor) -> Tensor:
    return v if float(v.detach().abs().sum()) >= 0 else -v


def looking_away(v: Tensor) -> Tensor:
    try:
        nothing_to_do = not bool(v.any())
    except RuntimeError:  # vmap has no single answer
        nothing_to_do = True
    return torch.zeros_like(v) if nothing_to_do else v


def refusing(v: Tensor) -> Tensor:
    try:
        v.detach().abs().sum().item()
    except RuntimeError as error:
        raise ValueError("this derivative takes one vector at a time") from error
    return v


# Functions with batching rules of their own


def ruled(rule: Callable[[Tensor, int], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the identity with a batching rule: batch, batch size -> batch, along the first dimension."""

    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(v):
            return v.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, v):
            return Identity.apply(v)

        @staticmethod
        def jvp(ctx, t):
            return Identity.apply(t)

        @staticmethod
        def vmap(info, in_dims, v):
            return rule(v.movedim(in_dims[0], 0), info.batch_size), 0

    return Identity.apply


def other_value(v: Tensor, size: int) -> Tensor:
    return v * 1.1


def first_of_the_batch(v: Tensor, size: int) -> Tensor:
    return v[:1].expand(v.shape).clone()  # right for batches of one


def batch_reversed(v: Tensor, size: int) -> Tensor:
    return v.flip(0)


def gradient_lost(v: Tensor, size: int) -> Tensor:
    return v.detach().clone()


def gradient_doubled(v: Tensor, size: int) -> Tensor:
    return 2 * v - v.detach()


def refused(v: Tensor, size: int) -> Tensor:
    raise NotImplementedError("no batches, please")


WRONG_VALUES = (other_value, first_of_the_batch, batch_reversed)


def with_vjp(step: Callable[[Tensor], Tensor]) -> Formula:
    """Return squares whose backward takes the cotangent through a step."""
    return replace(SQUARE, vjp=lambda x, v: (2 * step(v[0]) * x[0].conj(),))


def with_jvp(step: Callable[[Tensor], Tensor]) -> Formula:
    """Return squares whose jvp takes the tangent through a step."""
    return replace(SQUARE, jvp=lambda x, t: (2 * x[0] * step(t[0]),))


def value_through(step: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensors]:
    """Return squares of what a step returns."""
    return lambda x: (step(x) * step(x),)


FAULTS = (
    *(
        Fault(name=f"{mode}_{step.__name__}", function=make(step), leaves=ONE, caught_by=check, raises=step is refusing)
        for mode, make, check in (("backward", with_vjp, GRAD), ("tangent", with_jvp, FORWARD_GRAD))
        for step in (looking, looking_away, refusing)
    ),
    *(
        # torch batches by its first vmap, which knows nothing of the rules of autograd functions.
        Fault(
            name=f"{mode}_by_a_rule_with_{rule.__name__}",
            function=make(ruled(rule)),
            leaves=ONE,
            caught_by=check,
            torch_misses=check,
        )
        for mode, make, check in (("backward", with_vjp, GRAD), ("tangent", with_jvp, FORWARD_GRAD))
        for rule in (*WRONG_VALUES, refused)
    ),
    *(
        Fault(
            name=f"value_by_a_rule_with_{rule.__name__}", function=value_through(ruled(rule)), leaves=ONE, beside=VMAP
        )
        for rule in (*WRONG_VALUES, refused)
    ),
    *(
        # What is wrong here are derivatives of batches, of which no check speaks.
        Fault(name=f"value_by_a_rule_with_{rule.__name__}", function=value_through(ruled(rule)), leaves=ONE)
        for rule in (gradient_lost, gradient_doubled)
    ),
)
