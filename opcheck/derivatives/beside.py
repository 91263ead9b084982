"""The claims beside the Jacobian: undefined cotangents, attributes of gradients, determinism, batching of jvp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opcheck.derivatives.analytical import vjp
from opcheck.derivatives.coordinates import batches_of, rows_of, tensors_of, vector
from opcheck.derivatives.directions import probe
from opcheck.derivatives.dual import dual_level, make_dual, tangent_of
from opcheck.derivatives.engine import Disagreement, Request
from opcheck.derivatives.evidence import Evidence
from opcheck.derivatives.functions import Tensors

_untyped: Any = torch._C._functions  # what torch's gradcheck uses too: nothing public hands over an undefined cotangent


def undefined_cotangents(evidence: Evidence) -> str:
    """Return why undefined cotangents are not treated as zeros; an empty string where they are.

    All of them undefined must give zeros; one of several must give what a zero in its place gives.
    """
    outputs = evidence.function(*evidence.leaves)
    if not any(output.requires_grad for output in outputs):
        return ""
    evidence.ordinary_reverse  # noqa: B018 - its exceptions are those of any backward pass
    given = tensors_of(probe(evidence.size[0]), outputs)
    for missing in [range(len(outputs)), *([index] for index in range(len(outputs)) if len(outputs) > 1)]:
        marked = tuple(_undefined(y) if index in missing else y for index, y in enumerate(outputs))
        zeros = tuple(torch.zeros_like(v) if index in missing else v for index, v in enumerate(given))
        try:
            found = vjp(marked, evidence.leaves, given)
        except Exception as error:
            return f"{_which(missing, outputs, 'cotangent')} undefined: backward raised {type(error).__name__}: {error}"
        # All zeros, whatever the formula makes of zeros: 0 * inf, say.
        everything = len(missing) == len(outputs)
        expected = (
            torch.zeros(evidence.size[1], dtype=torch.float64)
            if everything
            else vector(vjp(outputs, evidence.leaves, zeros))
        )
        if not _close(vector(found), expected, evidence):
            return f"{_which(missing, outputs, 'cotangent')} undefined: the gradient is not that of zeros in its place"
    return ""


def _undefined(output: Tensor) -> Tensor:
    marked: Tensor = _untyped.UndefinedGrad()(output) if output.requires_grad else output
    return marked


def undefined_tangents(evidence: Evidence) -> str:
    """Return why an input without a tangent is not treated as one with a tangent of zeros; empty where it is."""
    leaves = [leaf.detach() for leaf in evidence.leaves]
    tangents = tensors_of(probe(evidence.size[1]), leaves)
    for missing in range(len(leaves)):
        found, expected = (
            _pushed(evidence, leaves, [t if index != missing else instead for index, t in enumerate(tangents)])
            for instead in (None, torch.zeros_like(tangents[missing]))
        )
        if len(leaves) == 1:
            expected = torch.zeros_like(found)  # whatever the formula makes of zeros: 0 * inf, say
        if not _close(found, expected, evidence):
            return f"input {missing} without a tangent: the tangent of the outputs is not that for zeros in its place"
    return ""


def _pushed(evidence: Evidence, leaves: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> Tensor:
    with dual_level():
        duals = [x if t is None else make_dual(x, t) for x, t in zip(leaves, tangents, strict=True)]
        outputs = evidence.function(*duals)
        found = [tangent_of(output) for output in outputs]
        return vector([torch.zeros_like(y) if t is None else t for t, y in zip(found, outputs, strict=True)])


def _which(missing: Sequence[int], outputs: Tensors, what: str) -> str:
    return f"the {what} is" if len(outputs) == 1 else f"{what}s {list(missing)} are"


def _close(found: Tensor, expected: Tensor, evidence: Evidence) -> bool:
    rounding = 1e4 * evidence.unit
    return torch.allclose(found, expected, rtol=rounding, atol=rounding, equal_nan=True)


def attributes(evidence: Evidence) -> str:
    """Return which gradient has not the dtype, shape, layout or device of its input; empty where all have."""

    def compare(outputs: Tensors) -> str:
        gradients = vjp(outputs, evidence.leaves, tuple(torch.ones_like(output) for output in outputs))
        for index, (gradient, leaf) in enumerate(zip(gradients, evidence.leaves, strict=True)):
            for what in ("dtype", "shape", "device", "layout"):
                got, expected = getattr(gradient, what), getattr(leaf, what)
                if got != expected and not (what == "layout" and got is torch.strided):
                    return f"the gradient of input {index} has the {what} {got}, not {expected}"
        return ""

    return evidence.on_graph(compare)


def repeated(evidence: Evidence) -> float:
    """Return by how much the gradients of two backward passes over the same graph differ at most."""
    first, again = evidence.ordinary_reverse, evidence.pull_back(probe(evidence.size[0]))
    same = (first == again) | (first.isnan() & again.isnan())
    off = torch.where(same, torch.zeros_like(first), (first - again).abs())
    return float(off.max()) if off.numel() else 0.0


def batched_jvp(evidence: Evidence, count: int = 3) -> tuple[Tensor, Tensor]:
    """Return tangents by `torch.func.vmap` over `torch.func.jvp`, and by the loop over it: both of shape (count, M).

    Exceptions are those of batching.
    """
    leaves = tuple(leaf.detach() for leaf in evidence.leaves)
    directions = torch.stack([probe(evidence.size[1], number) for number in range(count)])
    tangents = batches_of(directions, leaves)

    def pushed(*rows: Tensor) -> Tensors:
        found: Tensors = torch.func.jvp(evidence.function, leaves, rows)[1]
        return found

    batched = torch.func.vmap(pushed, randomness="same")(*tangents)
    return rows_of(batched, count), evidence.push_forward_each(directions)


def _batched_grad(evidence: Evidence, request: Request) -> Disagreement | None:
    if not evidence.outputs:
        return None
    analytical = evidence.analytical("reverse")
    if analytical.batch_said is not None:
        return None
    try:
        batched = evidence.batched("reverse")
    except Exception as error:
        return Disagreement(f"While computing batched gradients, got: {error}", "refused")
    if batched.holds(1e4 * evidence.unit):
        return None
    return _held(batched.jacobian, analytical.jacobian, "the vmapped backward pass is not that of the loop")


def _batched_forward_grad(evidence: Evidence, request: Request) -> Disagreement | None:
    if not evidence.outputs:
        return None
    try:
        batched, looped = batched_jvp(evidence)
    except Exception as error:
        return Disagreement(f"While computing batched gradients, got: {error}", "refused")
    return _held(batched, looped, "the vmapped jvp is not that of the loop")


def _held(batched: Tensor, looped: Tensor, text: str) -> Disagreement | None:
    if torch.allclose(batched, looped, rtol=1e-5, atol=1e-8, equal_nan=True):
        return None
    return Disagreement(f"{text}: off by up to {float((batched - looped).abs().max()):.4g}")


def _undefined_grad(evidence: Evidence, request: Request) -> Disagreement | None:
    text = undefined_cotangents(evidence)
    if not text and request.forward_ad:
        text = undefined_tangents(evidence)
    return Disagreement(text, "refused" if "raised" in text else "wrong") if text else None


def _grad_dtypes(evidence: Evidence, request: Request) -> Disagreement | None:
    text = attributes(evidence)
    return Disagreement(text) if text else None


def _nondeterminism(evidence: Evidence, request: Request) -> Disagreement | None:
    off = repeated(evidence)
    if off <= request.numbers.nondeterminism:
        return None
    return Disagreement(f"Backward is not reentrant: two backward passes differ by up to {off:.4g}")


BESIDE: dict[str, Callable[[Evidence, Request], Disagreement | None]] = {
    "batched_grad": _batched_grad,
    "batched_forward_grad": _batched_forward_grad,
    "undefined_grad": _undefined_grad,
    "grad_dtypes": _grad_dtypes,
    "nondeterminism": _nondeterminism,
}
"""The claims beside the Jacobian."""
