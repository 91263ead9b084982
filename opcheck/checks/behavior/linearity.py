"""Gradients are linear in cotangents, tangents of outputs in those of inputs, whatever their size and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.calls import Call, Result, Tensors, is_strided, push, tangents_of, tried
from opcheck.checks.relations import NO_GRAPH, Row, at_once, relation
from opcheck.checks.verdict import Blocked, Verdict, one_line
from opcheck.derivatives.coordinates import vector
from opcheck.samples.layouts import conjugated_view, negated_view

LARGE, SMALL = -1e3, 1e-3
"""The first is that of loss scaling and of a loss that is maximized, the second that of averages over many elements."""


def rows(subject: Subject, here: Result) -> Iterator[Row | Verdict]:
    """Compare both derivatives for scaled, lazily conjugated and lazily negated vectors with those for plain ones."""
    if not here.has_graph:
        yield NO_GRAPH
    call = Call.of(subject)
    yield from _linear(subject, "gradients", "cotangents", call.cotangents, call.gradient, here.gradient)
    if subject.supports.forward_ad and is_strided(subject):
        plain = tried(lambda: vector(push(subject)))
        if isinstance(plain, Exception):
            raise Blocked("forward_ad", f"an ordinary call in forward mode raised {one_line(plain)}") from plain
        vectors = tangents_of(subject)
        yield from _linear(subject, "tangents", "tangents", vectors, lambda t: vector(push(subject, t)), plain)


def _linear(
    subject: Subject, results: str, what: str, vectors: Tensors, derivative: Callable[[Tensors], Tensor], plain: Tensor
) -> Iterator[Row]:
    may_be_negated = _may_be_negated(subject)

    def of(factor: float, view: Callable[[Tensor], Tensor] = Tensor.clone) -> Tensor:
        return derivative(tuple(view(v * factor) for v in vectors)) / factor

    def together() -> Iterator[Row]:
        yield f"the {results} for large {what}", of(LARGE, _negated if may_be_negated else Tensor.clone), plain
        yield f"the {results} for small {what}", of(SMALL, _conjugated), plain

    def each() -> Iterator[Row]:
        for factor in (LARGE, SMALL):
            yield f"the {results} for {what} times {factor:g}, divided by it,", of(factor), plain
        if any(v.is_complex() for v in vectors):
            yield f"the {results} for lazily conjugated {what}", of(1.0, _conjugated), plain
        if may_be_negated:
            yield f"the {results} for lazily negated {what} (as after x.conj().imag)", of(1.0, _negated), plain

    return at_once(subject, together, each)


def _may_be_negated(subject: Subject) -> bool:
    """Tell whether a lazily negated vector can reach the operator: torch makes one of the imaginary part of x.conj().

    The graph before or after an operator has that where there are complex numbers, or such a view among its inputs.
    """
    claimed = subject.case.claims.backward
    return any(name.startswith("complex") for name in claimed) or any(
        leaf.is_neg() or leaf.is_conj() for leaf in subject.leaves if leaf.layout is torch.strided
    )


def _conjugated(v: Tensor) -> Tensor:
    """Return the same numbers as the lazy conjugate of their conjugates."""
    return conjugated_view(v.conj().resolve_conj().clone())


def _negated(v: Tensor) -> Tensor:
    """Return the same numbers as the lazy negative of their negatives."""
    return negated_view(-v)


check = relation(rows)
