"""Faults that depend on the cotangent or the tangent: values, memory, whether it is there, how often it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from operators.corpus_entries import COMPLEX, ONE, SECOND, TWO, Fault, Formula, Tensors, random_leaves
from operators.corpus_numbers import PRODUCTS, SQUARE
from operators.faulty import _contiguous_only

BACKWARD, FORWARD_AD = frozenset({"backward"}), frozenset({"forward_ad"})
MANY = random_leaves((4, 4))
"""So many that a random vector is longer than a unit vector."""


def through(bend: Callable[[Tensor], Tensor]) -> Formula:
    """Return squares whose backward bends the cotangent, which should be used as it is."""
    return replace(SQUARE, vjp=lambda x, v: (2 * bend(v[0]) * x[0].conj(),))


def tangent_through(bend: Callable[[Tensor], Tensor]) -> Formula:
    """Return squares whose jvp bends the tangent."""
    return replace(SQUARE, jvp=lambda x, t: (2 * bend(t[0]) * x[0],))


def real(v: Tensor) -> Tensor:
    return v.real if v.is_complex() else v


# Ways to bend a vector. The first ones leave unit vectors alone: a Jacobian that is computed row by row shows nothing.


def scaled_by_largest(v: Tensor) -> Tensor:
    largest = v.abs().amax()
    return v / torch.where(largest > 0, largest, 1)


def times_magnitude(v: Tensor) -> Tensor:
    return v * v.abs()


def counted(v: Tensor) -> Tensor:
    return v * (1 + 0.01 * ((v != 0).sum() - 1))


def negatives_shrunk(v: Tensor) -> Tensor:
    return torch.where(real(v) < 0, 0.9 * v, v)


def norm_clipped(v: Tensor) -> Tensor:
    return v / (v.abs() ** 2).sum().clamp(min=1).sqrt()


def small_ones_dropped(v: Tensor) -> Tensor:
    return torch.where(v.abs() < 0.25 * v.abs().amax(), 0 * v, v)


UNIT_VECTORS_ALONE = (scaled_by_largest, times_magnitude, counted, negatives_shrunk, norm_clipped, small_ones_dropped)
"""Right for unit vectors and wrong for others."""


def wrong_where_sparse(v: Tensor) -> Tensor:
    return torch.where((v == 0).any(), 1.1 * v, v)


def last_row_ignored(v: Tensor) -> Tensor:
    return torch.cat([v[:-1], 0 * v[-1:]])


def first_row_repeated(v: Tensor) -> Tensor:
    return v[:1].expand(v.shape)


def imaginary_negated(v: Tensor) -> Tensor:
    return v.conj()


def wrong_for_ones(v: Tensor) -> Tensor:
    return torch.where((v == 1).all(), 1.1 * v, v)


def by_value() -> Iterator[Fault]:
    """Yield the faults that depend on the values of vectors."""
    for mode, check, make in (("cotangents", BACKWARD, through), ("tangents", FORWARD_AD, tangent_through)):

        def bent(bend: Callable[[Tensor], Tensor], leaves=ONE, mode=mode, check=check, make=make, **fields) -> Fault:
            name = f"{mode}_{bend.__name__}"
            return Fault(name=name, function=make(bend), leaves=leaves, caught_by=check, **fields)

        for bend in UNIT_VECTORS_ALONE:
            # torch's slow mode asks for nothing but products with unit vectors.
            yield bent(bend, MANY, torch_misses=check)
        for bend in (wrong_where_sparse, last_row_ignored, first_row_repeated):
            yield bent(bend)
        yield bent(imaginary_negated, dtypes=(COMPLEX,))


BLIND_SPOTS = (
    # What the backward pass of sum() hands over, and nothing else: neither unit vectors nor random ones come near.
    Fault(
        name="cotangents_wrong_for_ones",
        function=through(wrong_for_ones),
        leaves=ONE,
        caught_by=BACKWARD,
        torch_misses=BACKWARD,
    ),
)


# Two outputs


def product_of_both(x: Tensors, v: Tensors) -> Tensors:
    first, second = PRODUCTS.vjp(x, v)
    return first, second + v[0] * v[1]  # vanishes for one cotangent at a time


def kept_apart(x: Tensors, v: Tensors) -> Tensors:
    both = (v[0] != 0).any() & (v[1] != 0).any()
    return tuple(torch.where(both, g.flip(0), g) for g in PRODUCTS.vjp(x, v))


TWO_OUTPUTS = (
    Fault(
        name="wrong_where_both_outputs_have_cotangents",
        function=replace(PRODUCTS, vjp=product_of_both),
        leaves=TWO,
        caught_by=BACKWARD,
        torch_misses=BACKWARD,
    ),
    Fault(
        name="flipped_where_both_outputs_have_cotangents",
        function=replace(PRODUCTS, vjp=kept_apart),
        leaves=TWO,
        caught_by=BACKWARD,
        torch_misses=BACKWARD,
    ),
)


# Undefined cotangents


def taken_for_ones(x: Tensors, v: tuple[Tensor | None, ...]) -> Tensors:
    return SQUARE.vjp(x, tuple(torch.ones_like(x[0]) if part is None else part for part in v))


CRASHING = Formula(
    PRODUCTS.value,
    lambda x, v: PRODUCTS.vjp(x, (v[0] + 0, v[1] + 0)),
    lambda x, t: PRODUCTS.jvp(x, tuple(torch.zeros_like(x[0]) if part is None else part for part in t)),
    materialize=False,
)
UNDEFINED = (
    Fault(
        name="crash_on_an_undefined_cotangent",
        function=replace(SQUARE, vjp=lambda x, v: SQUARE.vjp(x, (v[0] + 0,)), materialize=False),
        leaves=ONE,
        caught_by=frozenset({"undefined_grad"}),
        raises=True,
    ),
    Fault(
        name="crash_on_one_undefined_cotangent_of_two",
        function=CRASHING,
        leaves=TWO,
        caught_by=frozenset({"undefined_grad"}),
        either=BACKWARD,  # row by row, one output at a time, all others are undefined
        raises=True,
    ),
    Fault(
        name="undefined_cotangent_taken_for_ones",
        function=replace(SQUARE, vjp=taken_for_ones, materialize=False),
        leaves=ONE,
        caught_by=frozenset({"undefined_grad"}),
    ),
)


# Memory of the cotangent


def wrong_unless_contiguous(x: Tensors, v: Tensors) -> Tensors:
    return tuple(1.1 * g if not v[0].is_contiguous() else g for g in SQUARE.vjp(x, v))


def second_order_lost_unless_contiguous(x: Tensors, v: Tensors) -> Tensors:
    point = x if v[0].is_contiguous() else tuple(part.detach() for part in x)
    return (2 * v[0] * point[0].conj(),)


class CotangentOverwritten(torch.autograd.Function):
    """Squares, whose backward writes the gradient into the cotangent, as if it were its own."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x * x

    @staticmethod
    def backward(ctx, v):
        return v.mul_(2 * ctx.saved_tensors[0].conj())

    @staticmethod
    def jvp(ctx, t):
        return 2 * ctx.saved_tensors[0] * t


MEMORY = (
    Fault(
        name="strides_of_the_cotangent_forgotten",
        function=replace(SQUARE, vjp=lambda x, v: (_contiguous_only(x[0], v[0]),)),
        leaves=ONE,
        beside=BACKWARD,
        either=BACKWARD | SECOND,
    ),
    Fault(
        name="wrong_unless_the_cotangent_is_contiguous",
        function=replace(SQUARE, vjp=wrong_unless_contiguous),
        leaves=ONE,
        beside=BACKWARD,
        either=BACKWARD | SECOND,
    ),
    Fault(
        name="second_order_lost_unless_the_cotangent_is_contiguous",
        function=replace(SQUARE, vjp=second_order_lost_unless_contiguous),
        leaves=ONE,
        caught_by=frozenset({"rev_over_rev"}),
        either=frozenset({"fwd_over_rev"}),
    ),
    Fault(
        name="cotangent_overwritten",
        function=lambda x: (CotangentOverwritten.apply(x),),
        leaves=ONE,
        caught_by=frozenset({"rev_over_rev"}),  # a leaf that requires grad must not be written to
        # The gradient itself is right, for an engine that needs its cotangents only once.
        either=frozenset({"backward", "fwd_over_rev"}),
        raises=True,
    ),
)


# Repetition


class AccumulatesBetweenCalls(torch.autograd.Function):
    """Squares, whose backward adds to what it returned the last time."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        ctx.total = 0
        return x * x

    @staticmethod
    def backward(ctx, v):
        ctx.total = ctx.total + 2 * v * ctx.saved_tensors[0].conj()
        return ctx.total

    @staticmethod
    def jvp(ctx, t):
        return 2 * ctx.saved_tensors[0] * t


def noise(like: Tensor) -> Tensor:
    return torch.rand_like(real(like))


REPETITION = (
    Fault(
        name="backward_shaky",
        # Too little to show in difference quotients.
        function=replace(SQUARE, vjp=lambda x, v: (SQUARE.vjp(x, v)[0] * (1 + 1e-13 * noise(v[0])),)),
        leaves=ONE,
        caught_by=frozenset({"nondeterminism"}),
    ),
    Fault(
        name="backward_random",
        function=replace(SQUARE, vjp=lambda x, v: (SQUARE.vjp(x, v)[0] * noise(v[0]),)),
        leaves=ONE,
        caught_by=frozenset({"backward", "nondeterminism", *SECOND}),
    ),
    Fault(
        name="accumulates_between_calls",
        function=lambda x: (AccumulatesBetweenCalls.apply(x),),
        leaves=ONE,
        caught_by=frozenset({"backward", "nondeterminism"}),
    ),
    Fault(
        name="random_value",
        function=lambda x: (x * x * noise(x),),
        leaves=ONE,
        caught_by=frozenset({"backward", "forward_ad", *SECOND}),
    ),
    Fault(
        name="slightly_random_value",
        function=lambda x: (x * x * (1 + 1e-4 * noise(x)),),
        leaves=ONE,
        caught_by=frozenset({"backward", "forward_ad", *SECOND}),
    ),
)

FAULTS = (*by_value(), *TWO_OUTPUTS, *UNDEFINED, *MEMORY, *REPETITION)
