"""Shows why derivatives disagree: torch's words, and the two Jacobians around the worst entry."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

import torch
from torch import Tensor

from opcheck.checks.context import Subject, remedy
from opcheck.checks.verdict import HOLDS, Verdict, fails
from opcheck.derivatives import Disagreement, Request
from opcheck.derivatives.analytical import forward_jacobian, reverse_jacobian, vjp_function
from opcheck.derivatives.engine import Function
from opcheck.derivatives.mismatch import Mismatch, find_mismatch
from opcheck.derivatives.numerical import numerical_jacobian

Mode = Literal["reverse", "forward"]


def ask(subject: Subject, mode: Mode | None = None, *, order: int = 1) -> Verdict:
    """Put the case's claim to the engine. Where it does not hold, show the Jacobians of the given mode and order."""
    check = subject.context.case.check
    found = subject.context.engine.ask(check, subject.request)
    if found is not None and found.kind == "low accuracy":
        return Verdict(True, found.text)
    return HOLDS if found is None else contradicted(subject, found, mode, order=order)


def contradicted(subject: Subject, found: Disagreement, mode: Mode | None, *, order: int = 1) -> Verdict:
    """Return the verdict for a disagreement."""
    check = subject.context.case.check
    if found.kind == "inconclusive":
        return Verdict(False, f"{check}: {_first_line(found.text)}", _rest(found.text), inconclusive=True)
    mismatch = found.mismatch
    if mismatch is None and mode is not None and subject.context.engine.name == "torch":
        mismatch = _mismatch(subject.request, mode, order)
    first = _first_line(found.text)
    if found.kind == "refused":
        return fails(f"{check}: {first}", remedy(check))
    if mismatch is None:
        return fails(f"{check}: {first}", _rest(found.text))
    numbers = subject.request.numbers
    allowed = f"allowed: {numbers.atol:g} + {numbers.rtol:g} |numerical|, step {numbers.eps:g}"
    text = found.text if found.mismatch else mismatch.describe()
    return fails(f"{check}: {_headline(check, mode, order)}", f"{text}\n{allowed}", **_fields(mismatch, found))


def _headline(check: str, mode: Mode | None, order: int) -> str:
    if mode is None:
        return "the derivative is not the numerical one"
    what = "Jacobian" if order == 1 else "Jacobian of the backward pass"
    return f"the {mode}-mode {what} is not the numerical one"


def _fields(mismatch: Mismatch, found: Disagreement) -> dict[str, Any]:
    names = ("output", "leaf", "row", "column", "numerical", "analytical", "wrong", "entries")
    fields: dict[str, Any] = {name: getattr(mismatch, name) for name in names}
    if found.findings:
        fields["diagnosis"] = [asdict(finding) for finding in found.findings]
    if found.worst:
        fields["worst"] = [asdict(entry) for entry in found.worst]
    return fields


def _mismatch(request: Request, mode: Mode | None, order: int) -> Mismatch | None:
    """Compute both Jacobians again, in full; None where that is not possible or shows no difference."""
    leaves = request.leaves
    if any(leaf.layout is not torch.strided for leaf in leaves):
        return None  # the coordinates of sparse leaves are their specified elements; torch's message shows them
    try:
        function, leaves = _of_order(request, order)
        outputs = function(*leaves)
        numerical = numerical_jacobian(function, leaves, request.numbers.eps)
        analytical = (forward_jacobian if mode == "forward" else reverse_jacobian)(function, leaves)
        return find_mismatch(numerical, analytical, outputs, leaves, request.numbers)
    except Exception:
        return None  # evidence for the reader only: the verdict stands without it


def _of_order(request: Request, order: int) -> tuple[Function, tuple[Tensor, ...]]:
    if order == 1:
        return request.function, request.leaves
    outputs = [output for output in request.function(*request.leaves) if output.requires_grad]
    cotangents = request.grad_outputs or tuple(torch.rand_like(output) * 2 - 1 for output in outputs)
    given = tuple(v.detach().clone().requires_grad_() for v in cotangents)
    return vjp_function(request.function, len(request.leaves)), (*request.leaves, *given)


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:300] if lines else "no explanation"


def _rest(text: str, most: int = 40) -> str:
    lines = [line for line in text.splitlines() if line.strip()][1:]
    return "\n".join(lines[:most] + (["..."] if len(lines) > most else []))
