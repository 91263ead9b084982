"""Each gradient has the dtype, shape, layout and device of its input, as returned, before autograd converts it."""

from __future__ import annotations

import torch

from opcheck.checks.context import Subject, per_sample
from opcheck.checks.evidence import ask
from opcheck.checks.verdict import HOLDS, Verdict, fails
from opcheck.derivatives.analytical import vjp
from opcheck.derivatives.raw_gradients import raw_gradients


def judge(subject: Subject) -> Verdict:
    """Look at the gradients that users get, and at those that Python backward functions return."""
    verdict = ask(subject)
    return verdict if not verdict.passed else _gradients(subject) or _raw_gradients(subject) or HOLDS


def _gradients(subject: Subject) -> Verdict | None:
    outputs = subject.differentiable_outputs
    if not outputs:
        return None
    gradients = vjp(outputs, subject.leaves, tuple(torch.ones_like(output) for output in outputs))
    for index, (gradient, leaf) in enumerate(zip(gradients, subject.leaves, strict=True)):
        for what in ("dtype", "shape", "device"):
            if getattr(gradient, what) != getattr(leaf, what):
                return fails(f"grad_dtypes: {_differs(what, index, getattr(gradient, what), getattr(leaf, what))}")
        if gradient.layout not in (leaf.layout, torch.strided):
            return fails(f"grad_dtypes: {_differs('layout', index, gradient.layout, leaf.layout)}")
    return None


def _raw_gradients(subject: Subject) -> Verdict | None:
    fresh = subject.function(*subject.leaves)  # a graph of its own: watching changes the nodes
    for raw in raw_gradients(fresh, subject.leaves):
        if raw.gradient.dtype != raw.dtype:
            return fails(
                f"grad_dtypes: {raw.function} returns a gradient of {raw.gradient.dtype} for an input of {raw.dtype}",
                f"gradient {raw.position} of the backward function; autograd converts it silently, digits are lost",
            )
        if raw.gradient.device != raw.device:
            return fails(
                f"grad_dtypes: {raw.function} returns a gradient on {raw.gradient.device} for one on {raw.device}"
            )
    return None


def _differs(what: str, index: int, got: object, expected: object) -> str:
    return f"the gradient of input {index} has the {what} {got}, not {expected}"


check = per_sample(judge)
