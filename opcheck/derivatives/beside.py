"""The claims beside the Jacobian: undefined cotangents, attributes of gradients, determinism, batching of jvp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opcheck.derivatives.amount import NO_REFUSAL
from opcheck.derivatives.analytical import vjp
from opcheck.derivatives.comparison import same
from opcheck.derivatives.coordinates import (
    located,
    parts,
    real_size,
    tensors_of,
    vector,
    with_gaps,
)
from opcheck.derivatives.directions import probe, with_probe
from opcheck.derivatives.dual import jvp
from opcheck.derivatives.engine import Disagreement, Request
from opcheck.derivatives.evidence import Evidence
from opcheck.derivatives.functions import Tensors
from opcheck.text import class_of, message_of

_untyped: Any = torch._C._functions  # what torch's gradcheck uses too: nothing public hands over an undefined cotangent


def undefined_cotangents(evidence: Evidence) -> str:
    """Return why undefined cotangents are not treated as zeros; an empty string where they are.

    All of them undefined must give zeros; one of several must give what a zero in its place gives.
    """
    evidence.ordinary_reverse  # noqa: B018 - its exceptions are those of any backward pass
    outputs = evidence.outputs
    if not any(output.requires_grad for output in outputs):
        return ""
    sizes = [real_size(output) for output in outputs]
    for missing in [range(len(outputs)), *([index] for index in range(len(outputs)) if len(outputs) > 1)]:
        try:
            found = _pulled_without(evidence, missing)
        except NO_REFUSAL:
            raise
        except Exception as error:
            which = _which(missing, outputs, "cotangent")
            return f"{which} undefined: backward raised {class_of(error)}: {message_of(error)}"
        # None at all: zeros, whatever the formula makes of zeros (0 * inf, say).
        nothing = len(missing) == len(outputs)
        zeroed = _without(probe(evidence.size[0]), missing, sizes)
        expected = torch.zeros_like(found) if nothing else evidence.pulled_back(zeroed)
        if _close(found, expected, evidence):
            continue
        if nothing or not _close(found, evidence.pull_back(zeroed), evidence):
            return f"{_which(missing, outputs, 'cotangent')} undefined: the gradient is not that of zeros in its place"
    return ""


def _pulled_without(evidence: Evidence, missing: Sequence[int]) -> Tensor:
    """Return the gradients for the probe, with undefined cotangents for some outputs."""

    def pulled(outputs: Tensors) -> Tensor:
        marked = tuple(_undefined(y) if index in missing else y for index, y in enumerate(outputs))
        return vector(vjp(marked, evidence.leaves, tensors_of(probe(evidence.size[0]), outputs)))

    return evidence.on_graph(pulled)


def _without(direction: Tensor, missing: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Return a direction with zeros for some of the tensors whose real sizes are given."""
    pieces = parts(direction, sizes)
    return torch.cat([piece * 0 if index in missing else piece for index, piece in enumerate(pieces)])


def _undefined(output: Tensor) -> Tensor:
    marked: Tensor = _untyped.UndefinedGrad()(output) if output.requires_grad else output
    return marked


def undefined_tangents(evidence: Evidence) -> str:
    """Return why an input without a tangent is not treated as one with a tangent of zeros; empty where it is."""
    evidence.ordinary_forward  # noqa: B018 - its exceptions are those of any call in forward mode
    leaves = [leaf.detach() for leaf in evidence.leaves]
    direction, sizes = probe(evidence.size[1]), [real_size(leaf) for leaf in leaves]
    tangents = tensors_of(direction, leaves)
    for missing in range(len(leaves)):
        found = vector(jvp(evidence.function, leaves, [None if k == missing else t for k, t in enumerate(tangents)]))
        # None at all: zeros, whatever the formula makes of zeros (0 * inf, say).
        nothing = len(leaves) == 1
        zeroed = _without(direction, [missing], sizes)
        expected = torch.zeros_like(found) if nothing else evidence.pushed_forward(zeroed)
        if not _close(found, expected, evidence) and (
            nothing or not _close(found, evidence.push_forward(zeroed), evidence)
        ):
            return f"input {missing} without a tangent: the tangent of the outputs is not that for zeros in its place"
    return ""


def _which(missing: Sequence[int], outputs: Tensors, what: str) -> str:
    return f"the {what} is" if len(outputs) == 1 else f"{what}s {list(missing)} are"


def _close(found: Tensor, expected: Tensor, evidence: Evidence) -> bool:
    rounding = 1e4 * evidence.unit
    return same(found, expected, rounding, rounding)


def memory_of_cotangents(evidence: Evidence) -> str:
    """Return which gradient depends on how the cotangent lies in memory; empty where none does.

    Cotangents have gaps, or are one number expanded: what the backward pass of sum() hands over.
    """

    def compare(outputs: Tensors) -> str:
        gaps = tuple(with_gaps(v) for v in tensors_of(probe(evidence.size[0]), outputs))
        one = tuple(torch.ones((), dtype=y.dtype, device=y.device).expand(y.shape) for y in outputs)
        for memory, special, plain in (
            ("a non-contiguous", gaps, evidence.ordinary_reverse),
            ("an expanded (stride 0)", one, evidence.pulled_back(vector(one))),
        ):
            values = vector(special)  # before somebody writes to it
            found = vector(vjp(outputs, evidence.leaves, special))
            if _close(found, plain, evidence) or _close(found, evidence.pull_back(values), evidence):
                continue
            off = (found - plain).abs().nan_to_num(nan=float("inf"))
            leaf, _ = located(int(off.argmax()), evidence.leaves)
            return (
                f"the gradient of input {leaf} depends on the memory of the cotangent\n{memory} cotangent gives one "
                f"that is off by up to {float(off.max()):.4g} from that of a contiguous one with the same values"
            )
        return ""

    return evidence.on_graph(compare) if any(y.requires_grad for y in evidence.outputs) else ""


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


def _batched_grad(evidence: Evidence, request: Request) -> Disagreement | None:
    if not evidence.outputs:
        return None
    directions = with_probe(evidence.size[0], evidence.projections, "outputs")
    try:
        batched = evidence.pull_back_vmapped(directions)
    except NO_REFUSAL:
        raise
    except Exception as error:
        return Disagreement(f"While computing batched gradients, got: {message_of(error)}", "refused")
    if same(batched, evidence.pulled_back(directions), 1e-5, 1e-8):
        return None
    return _held(batched, evidence.pull_back_each(directions), "the vmapped backward pass is not that of the loop")


def _batched_forward_grad(evidence: Evidence, request: Request) -> Disagreement | None:
    if not evidence.outputs:
        return None
    directions = torch.stack([probe(evidence.size[1], number) for number in range(3)])
    try:
        batched = evidence.push_forward_vmapped(directions)
    except NO_REFUSAL:
        raise
    except Exception as error:
        return Disagreement(f"While computing batched gradients, got: {message_of(error)}", "refused")
    if same(batched, evidence.pushed_forward(directions), 1e-5, 1e-8):
        return None
    return _held(batched, evidence.push_forward_each(directions), "the vmapped jvp is not that of the loop")


def _held(batched: Tensor, looped: Tensor, text: str) -> Disagreement | None:
    if same(batched, looped, 1e-5, 1e-8):
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

BEYOND: dict[str, Callable[[Evidence], str]] = {"backward": memory_of_cotangents, "grad_dtypes": attributes}
"""What torch's functions leave out of a check."""


def beyond_torch(check: str, evidence: Evidence) -> Disagreement | None:
    """Return why what torch's functions leave out of a check does not hold; None where it does."""
    text = BEYOND[check](evidence) if check in BEYOND else ""
    return Disagreement(text) if text else None
