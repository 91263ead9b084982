"""Claims about gradients other than their values: undefined cotangents, attributes, memory, determinism, batching."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Tensors, jvp, vjp
from opcheck.derivatives.coordinates import (
    deviation,
    largest_difference,
    located,
    parts,
    real_size,
    same,
    tensors_of,
    vector,
)
from opcheck.derivatives.cotangents import directions, probe, with_gaps
from opcheck.derivatives.disagreement import Disagreement, Names
from opcheck.derivatives.evidence import Evidence
from opcheck.derivatives.question import NO_REFUSAL, Request
from opcheck.text import class_of, message_of

REPEATS = 7
"""How often backward is repeated to see whether it is random. What differs once in ten times shows in most samples."""

_untyped: Any = torch._C._functions  # what torch's gradcheck uses too: nothing public hands over an undefined cotangent


def undefined_cotangents(evidence: Evidence, request: Request) -> Disagreement | None:
    """Return why undefined cotangents are not treated as zeros, or None if they are.

    If all are undefined, the gradients must be zero. If one of several is, or all but one, they must be those for
    zeros in their place.
    """
    evidence.ordinary_reverse  # noqa: B018 - its exceptions are those of any backward pass
    outputs = evidence.outputs
    if not any(output.requires_grad for output in outputs):
        return None
    sizes = [real_size(output) for output in outputs]
    for missing in _missing(len(outputs)):
        try:
            gradient = _vjp_without(evidence, missing)
        except NO_REFUSAL:
            raise
        except Exception as error:
            said = f"backward raised {class_of(error)}: {message_of(error)}"
            return Disagreement(f"{_cotangents(missing, evidence, request)} undefined: {said}", "refused")
        if len(missing) == len(outputs):
            holds = _close(
                gradient, torch.zeros_like(gradient), evidence
            )  # whatever the formula makes of zeros (0 * inf, say)
        else:
            zeroed = _without(probe(evidence.size[0]), missing, sizes)
            holds = _as_for_zeros(gradient, zeroed, evidence.vjp_by_jacobian, evidence.vjp, evidence)
        if not holds:
            said = "the gradient is not that of zeros in its place"
            return Disagreement(f"{_cotangents(missing, evidence, request)} undefined: {said}")
    return None


def _cotangents(missing: Sequence[int], evidence: Evidence, request: Request) -> str:
    """Return which cotangents are missing, as the subject of a sentence."""
    called = Names.of(evidence.function, request)
    names, several = [called.outputs[index] for index in missing], len(missing) > 1
    return f"the cotangent{'s' * several} of {', '.join(names)} {'are' if several else 'is'}"


def _missing(count: int) -> Iterator[Sequence[int]]:
    """Yield which of several cotangents to leave out: all, each one, all but one."""
    every = range(count)
    yield every
    if count > 1:
        yield from ([index] for index in every)
    if count > 2:
        yield from ([k for k in every if k != index] for index in every)


def undefined_tangents(evidence: Evidence, request: Request) -> Disagreement | None:
    """Return why a missing tangent is not treated as a tangent of zeros, or None if it is."""
    evidence.ordinary_forward  # noqa: B018 - its exceptions are those of any call in forward mode
    leaves = [leaf.detach() for leaf in evidence.leaves]
    direction, sizes = probe(evidence.size[1]), [real_size(leaf) for leaf in leaves]
    tangents = tensors_of(direction, leaves)
    for missing in range(len(leaves)):
        tangent = vector(jvp(evidence.function, leaves, [None if k == missing else t for k, t in enumerate(tangents)]))
        if len(leaves) == 1:
            holds = _close(tangent, torch.zeros_like(tangent), evidence)
        else:
            zeroed = _without(direction, [missing], sizes)
            holds = _as_for_zeros(tangent, zeroed, evidence.jvp_by_jacobian, evidence.jvp, evidence)
        if not holds:
            name = Names.of(evidence.function, request).leaves[missing]
            return Disagreement(
                f"{name} without a tangent: the tangent of the outputs is not that for zeros in its place"
            )
    return None


def _as_for_zeros(
    derivative: Tensor, zeroed: Tensor, by_jacobian: Callable[[Tensor], Tensor], ordinary: Callable[[Tensor], Tensor],
    evidence: Evidence,
) -> bool:  # fmt: skip
    """Tell whether a derivative without some vectors is the one for `zeroed`, which has zeros in their place.

    A derivative that is random tells nothing: two ordinary calls differ as well.
    """
    by_rows = by_jacobian(zeroed)
    if _close(derivative, by_rows, evidence):
        return True
    expected = ordinary(zeroed)
    if _close(derivative, expected, evidence) or is_cancellation(derivative, expected, by_rows, evidence):
        return True
    return not _close(expected, ordinary(zeroed), evidence)


def is_cancellation(derivative: Tensor, expected: Tensor, otherwise: Tensor, evidence: Evidence) -> bool:
    """Tell whether a derivative differs by rounding alone, where large terms cancel: up to half of the digits.

    otherwise: the same as `expected`, computed in another way, which has to differ from it as well.
    """
    most = 10 * evidence.unit**0.5 * float(expected.abs().max()) if expected.numel() else 0.0
    return largest_difference(derivative, expected) <= min(100 * largest_difference(expected, otherwise), most)


def _vjp_without(evidence: Evidence, missing: Sequence[int]) -> Tensor:
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


def _close(one: Tensor, other: Tensor, evidence: Evidence) -> bool:
    rounding = 1e4 * evidence.unit
    return same(one, other, rounding, rounding)


def memory_of_cotangents(evidence: Evidence, request: Request) -> Disagreement | None:
    """Return which gradient depends on the memory layout of the cotangent, or None if none does.

    Cotangents have gaps, or are a single number expanded, as in the backward pass of sum(). Nothing is known of a
    backward pass that is random: two ordinary calls differ as well.
    """

    def compare(outputs: Tensors) -> Disagreement | None:
        gaps = tuple(with_gaps(v) for v in tensors_of(probe(evidence.size[0]), outputs))
        one = tuple(torch.ones((), dtype=y.dtype, device=y.device).expand(y.shape) for y in outputs)
        for memory, special, plain in (
            ("a non-contiguous", gaps, evidence.ordinary_reverse),
            ("an expanded (stride 0)", one, evidence.vjp_by_jacobian(vector(one))),
        ):
            values = vector(special)  # before somebody writes to it
            gradient = vector(vjp(outputs, evidence.leaves, special))
            if _close(gradient, plain, evidence) or _close(gradient, again := evidence.vjp(values), evidence):
                continue
            if not _close(again, evidence.vjp(values), evidence):
                return None
            off = (gradient - plain).abs().nan_to_num(nan=float("inf"))
            leaf = Names.of(evidence.function, request).leaves[located(int(off.argmax()), evidence.leaves)[0]]
            return Disagreement(
                f"the gradient of {leaf} depends on the memory of the cotangent\n{memory} cotangent gives one "
                f"that is off by up to {float(off.max()):.4g} from that of a contiguous one with the same values"
            )
        return None

    return evidence.on_graph(compare) if any(y.requires_grad for y in evidence.outputs) else None


def attributes(evidence: Evidence, request: Request) -> Disagreement | None:
    """Return which gradient differs from its input in dtype, shape, layout or device, or None if none does.

    A gradient may always be strided. One that is sparse has as many sparse and dense dimensions as its input.
    """

    def compare(outputs: Tensors) -> Disagreement | None:
        gradients = vjp(outputs, evidence.leaves, tuple(torch.ones_like(output) for output in outputs))
        for index, (gradient, leaf) in enumerate(zip(gradients, evidence.leaves, strict=True)):
            for what in ("dtype", "shape", "device", "layout"):
                got, expected = getattr(gradient, what), getattr(leaf, what)
                if got != expected and not (what == "layout" and got is torch.strided):
                    name = Names.of(evidence.function, request).leaves[index]
                    return Disagreement(f"the gradient of {name} has the {what} {got}, not {expected}")
            if gradient.is_sparse and leaf.is_sparse and gradient.sparse_dim() != leaf.sparse_dim():
                name = Names.of(evidence.function, request).leaves[index]
                return Disagreement(
                    f"the gradient of {name} has {gradient.sparse_dim()} sparse dimensions, not {leaf.sparse_dim()}"
                )
        return None

    return evidence.on_graph(compare)


def _undefined_grad(evidence: Evidence, request: Request) -> Disagreement | None:
    disagreement = undefined_cotangents(evidence, request)
    return disagreement or (undefined_tangents(evidence, request) if request.forward_ad else None)


def nondeterminism(evidence: Evidence, request: Request, repeats: int = REPEATS) -> Disagreement | None:
    """Return by how much backward passes on one graph differ from the first, or None if they do not."""

    def repeated(outputs: Tensors) -> Disagreement | None:
        def again() -> Tensor:
            return evidence.pulled(outputs, tensors_of(cotangent, outputs))

        cotangent = probe(evidence.size[0])
        first = evidence.ordinary_reverse if outputs is evidence.outputs else again()
        for _ in range(repeats):
            off = deviation(first, again())
            if not off <= request.numbers.nondeterminism:
                return Disagreement(f"Backward is not reentrant: two backward passes differ by up to {off:.4g}")
        return None

    return evidence.on_graph(repeated)


def _batched_grad(evidence: Evidence, request: Request) -> Disagreement | None:
    size = evidence.size[0]
    cotangents = torch.cat([directions(size, evidence.projections, "outputs"), probe(size).unsqueeze(0)])
    vmapped, expected, looped = evidence.vjp_vmapped, evidence.vjp_by_jacobian, evidence.vjp_looped
    return _batching(evidence, cotangents, vmapped, (expected, looped), "backward pass")


def _batched_forward_grad(evidence: Evidence, request: Request) -> Disagreement | None:
    tangents = torch.stack([probe(evidence.size[1], number) for number in range(3)])
    vmapped, expected, looped = evidence.jvp_vmapped, evidence.jvp_by_jacobian, evidence.jvp_looped
    return _batching(evidence, tangents, vmapped, (expected, looped), "jvp")


def _batching(
    evidence: Evidence, directions: Tensor, vmapped: Callable[[Tensor], Tensor],
    unbatched: tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]], what: str,
) -> Disagreement | None:  # fmt: skip
    """Return why a derivative cannot be vmapped, or how the result differs; None if it is right."""
    if not evidence.outputs:
        return None
    try:
        batched = vmapped(directions)
    except NO_REFUSAL:
        raise
    except Exception as error:
        return Disagreement(f"While computing batched gradients, got: {message_of(error)}", "refused")
    for expected in (way(directions) for way in unbatched):  # what the Jacobian objects to, ordinary calls confirm
        if same(batched, expected, 1e-5, 1e-8):
            return None
    if not same(expected, unbatched[1](directions), 1e-5, 1e-8):
        return None  # it is random: the loop differs from itself
    off = float((batched - expected).abs().max())
    return Disagreement(f"the vmapped {what} is not that of the loop: off by up to {off:.4g}")


GRADIENT_CLAIMS: dict[str, Callable[[Evidence, Request], Disagreement | None]] = {
    "batched_grad": _batched_grad,
    "batched_forward_grad": _batched_forward_grad,
    "undefined_grad": _undefined_grad,
    "grad_dtypes": attributes,
    "nondeterminism": nondeterminism,
}
"""How each claim beside the Jacobian is tested, by the name of its check."""
