"""Functions that lose digits, or return derivatives in another dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from operators.corpus_entries import ONE, REAL, SECOND, Fault, Tensors
from operators.corpus_numbers import SQUARE, SQUARE_PULLED


def single(x: Tensor) -> Tensor:
    return x.to(torch.complex64 if x.is_complex() else torch.float32)


def rounded(x: Tensor) -> Tensor:
    return single(x).to(x.dtype)


def bfloat16(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16).to(x.dtype)


def each(change: Callable[[Tensor], Tensor], derivative: Callable[[Tensors, Tensors], Tensors]):
    """Return a derivative with each of its results changed."""
    return lambda x, v: tuple(change(result) for result in derivative(x, v))


FAULTS = (
    Fault(
        name="value_in_single_precision",
        function=replace(SQUARE, value=lambda x: (rounded(x * x),)),
        leaves=ONE,
        caught_by=frozenset({"backward", "forward_ad"}),
    ),
    Fault(
        name="gradient_in_bfloat16",
        function=replace(SQUARE, vjp=each(bfloat16, SQUARE.vjp)),
        leaves=ONE,
        dtypes=(REAL,),
        caught_by=frozenset({"backward", *SECOND}),
    ),
    # At second order, the steps of difference quotients drown in the rounding of the gradient.
    Fault(
        name="gradient_returned_in_single_precision",
        function=replace(SQUARE, vjp=each(single, SQUARE.vjp)),
        leaves=ONE,
        caught_by=SECOND,
        beside=frozenset({"grad_dtypes"}),
    ),
)

LOW_ACCURACY = (
    Fault(
        name="gradient_in_single_precision",
        function=replace(SQUARE, vjp=each(rounded, SQUARE.vjp)),
        leaves=ONE,
        caught_by=SECOND,
    ),
    Fault(
        name="tangent_in_single_precision",
        function=replace(SQUARE, jvp=each(rounded, SQUARE.jvp)),
        leaves=ONE,
    ),
    Fault(
        name="second_order_in_single_precision",
        function=replace(
            SQUARE,
            vjp=lambda x, v: replace(
                SQUARE_PULLED, vjp=each(rounded, SQUARE_PULLED.vjp), jvp=each(rounded, SQUARE_PULLED.jvp)
            )(*x, *v),
        ),
        leaves=ONE,
    ),
)  # fmt: skip
