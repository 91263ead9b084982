"""Gradients are linear in cotangents, tangents of outputs in those of inputs, whatever their size and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.calls import Call, compared, is_strided, ordinary, pushed_forward, tangents
from opcheck.checks.judging import per_sample
from opcheck.checks.verdict import Verdict, first_failure, untested
from opcheck.samples.layouts import conjugated_view, negated_view

FACTORS = (-1e3, 1e-3)
"""The first is that of loss scaling and of a loss that is maximized, the second that of averages over many elements."""

Derivative = Callable[[Sequence[Tensor]], Tensor]


def judge(subject: Subject) -> Verdict:
    """Compare both derivatives for scaled, lazily conjugated and lazily negated vectors with those for plain ones."""
    ordinary(subject)
    call = Call.of(subject)
    if not any(output.requires_grad for output in call.outputs):
        return untested("no output requires grad: there is no backward pass")
    verdict = _linear(subject, "gradients", "cotangents", call.cotangents, call.pulled_back)
    if verdict.passed and subject.supports.forward_ad and is_strided(subject):
        plain = tangents(subject)
        verdict = _linear(subject, "tangents", "tangents", plain, lambda t: pushed_forward(subject, t))
    return verdict


def _linear(subject: Subject, results: str, what: str, vectors: Sequence[Tensor], derivative: Derivative) -> Verdict:
    plain = derivative(_cloned(vectors))

    def verdicts() -> Iterator[Verdict]:
        for factor in FACTORS:
            got = derivative(tuple(v * factor for v in vectors)) / factor
            yield compared(subject, f"the {results} for {what} times {factor:g}, divided by it,", got, plain)
        if any(v.is_complex() for v in vectors):
            got = derivative(_lazily_conjugated(vectors))
            yield compared(subject, f"the {results} for lazily conjugated {what}", got, plain)
        if _may_be_negated(subject):
            got = derivative(_lazily_negated(vectors))
            yield compared(subject, f"the {results} for lazily negated {what} (as after x.conj().imag)", got, plain)

    return first_failure(verdicts())


def _may_be_negated(subject: Subject) -> bool:
    """Tell whether a lazily negated vector can reach the operator: torch makes one of the imaginary part of x.conj().

    The graph before or after an operator has that where there are complex numbers, or such a view among its inputs.
    """
    claimed = subject.case.claims.backward
    return any(name.startswith("complex") for name in claimed) or any(
        leaf.is_neg() or leaf.is_conj() for leaf in subject.leaves if leaf.layout is torch.strided
    )


def _cloned(vectors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return copies: a derivative may write to what it is given."""
    return tuple(v.clone() for v in vectors)


def _lazily_conjugated(vectors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(conjugated_view(v.conj().resolve_conj().clone()) for v in vectors)


def _lazily_negated(vectors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(negated_view(-v) for v in vectors)


check = per_sample(judge)
