"""Claims about gradients other than their values: undefined cotangents, attributes, memory, determinism, batching."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Mode, jvp, vjp
from opcheck.derivatives.coordinates import (
    deviation,
    largest_difference,
    located,
    real_size,
    same,
    tensors_of,
    vector,
)
from opcheck.derivatives.cotangents import directions, probe, subsets, undefined, without
from opcheck.derivatives.disagreement import Disagreement
from opcheck.derivatives.point import Point
from opcheck.derivatives.refusals import tried
from opcheck.derivatives.sparse import ones_like
from opcheck.derivatives.uncertainty import largest
from opcheck.strides import MEMORIES
from opcheck.text import class_of, message_of

REPEATS = 7
"""How often backward is repeated to detect randomness. A pass that differs one time in ten is caught at about half of
the samples (1 - 0.9**7 = 0.52)."""

KEPT = "with retain_graph=True a graph is used again: backward must leave what forward has saved as it is"

COTANGENTS = ("noncontiguous", "number", "expanded", "expanded_last")
"""The memory layouts of cotangents at written samples, besides contiguous ones: with gaps, and as the backward pass of
sum() over all dims, over the first or over the last dim expands them."""


def undefined_in(point: Point, mode: Mode) -> Disagreement | None:
    """Return why undefined cotangents, or missing tangents, are not treated as zeros, or None if they are.

    If all cotangents are undefined, the gradients must be zero. If some are, the gradients must be those for zeros in
    place of the undefined cotangents. The same holds for tangents, at least one of which must be there.
    """
    point.product(mode)
    names, reverse = point.names, mode == "reverse"
    tensors, labels = (point.outputs, names.outputs) if reverse else (point.leaves, names.leaves)
    if not any(tensor.requires_grad for tensor in tensors):
        return None
    direction, sizes = point.probe_of(mode), [*map(real_size, tensors)]
    for missing in subsets(len(tensors)):
        if not reverse and len(missing) == len(tensors):
            continue
        called, several = ", ".join(labels[index] for index in missing), len(missing) > 1
        if reverse:
            said = f"the cotangent{'s' * several} of {called} {'are' if several else 'is'} undefined"
            by, result, what = "backward", "gradient", "an undefined (None) cotangent"
        else:
            said = f"{called} {'have' if several else 'has'} no tangent"
            by, result, what = "forward mode", "tangent of the outputs", "None"
        product = tried(partial(_product_without, point, mode, direction, missing))
        if isinstance(product, Exception):
            return Disagreement(f"{said}: {by} {_raised(product)}", "refused", cause=product)
        if not _is_for_zeros(product, without(direction, missing, sizes), point, mode):
            return Disagreement(f"{said}: the {result} differs from that for zeros; treat {what} as zeros")
    return None


def _product_without(point: Point, mode: Mode, direction: Tensor, missing: Sequence[int]) -> Tensor:
    """Return the product with a direction whose vectors are undefined for some outputs, or missing for some leaves."""
    if mode == "forward":
        leaves = [leaf.detach() for leaf in point.leaves]
        tangents = tensors_of(direction, leaves)
        return vector(jvp(point.function, leaves, [None if k in missing else t for k, t in enumerate(tangents)]))
    outputs = point.graph()
    marked = tuple(undefined(y) if index in missing else y for index, y in enumerate(outputs))
    return vector(vjp(marked, point.leaves, point.cotangents_of(direction, outputs)))


def _raised(error: Exception) -> str:
    return f"raised {class_of(error)}: {message_of(error)}"


def _is_for_zeros(derivative: Tensor, zeroed: Tensor, point: Point, mode: Mode) -> bool:
    """Return whether a derivative without some vectors equals the one for `zeroed`, which has zeros in their place."""
    rounding = point.rounding
    if not bool(zeroed.any()):  # expect zero: the formula may turn zeros into NaN (0 * inf, say)
        return same(derivative, torch.zeros_like(derivative), rounding, rounding)
    expected = _instead_of(derivative, point, mode, zeroed, rounding, rounding)
    return expected is None or is_cancellation(derivative, expected, point.by_jacobian(mode, zeroed), point)


def _instead_of(got: Tensor, point: Point, mode: Mode, vectors: Tensor, rtol: float, atol: float) -> Tensor | None:
    """Return the derivative for some vectors by ordinary calls, if `got` differs from it; else None.

    First, `got` is compared with the product of the Jacobian, which may be cached. Return None as well for a derivative
    that is random: two ordinary calls differ from each other.
    """
    if same(got, point.by_jacobian(mode, vectors), rtol, atol):
        return None
    ordinary = point.product if vectors.dim() == 1 else point.products
    expected = ordinary(mode, vectors)
    if same(got, expected, rtol, atol) or not same(expected, ordinary(mode, vectors), rtol, atol):
        return None
    return expected


def is_cancellation(derivative: Tensor, expected: Tensor, otherwise: Tensor, point: Point) -> bool:
    """Return whether a derivative differs from `expected` by rounding alone, where large terms cancel.

    Such a difference may be up to half of the digits. otherwise: the derivative `expected`, computed in another way. It
    must differ from `expected`, too.
    """
    most = 10 * point.unit**0.5 * float(expected.abs().max()) if expected.numel() else 0.0
    return largest_difference(derivative, expected) <= min(100 * largest_difference(expected, otherwise), most)


def memory_of_cotangents(
    point: Point, memories: Iterable[str] = COTANGENTS, rounding: float | None = None
) -> Disagreement | None:
    """Return which gradient depends on how the cotangent lies in memory, or None if none does.

    memories: the memory layouts to compare with contiguous memory, as named in MEMORIES.
    rounding: the relative and the absolute tolerance of gradients. Default: what the dtypes of the point explain.
    """
    dims = max((y.dim() for y in point.outputs if y.requires_grad), default=-1)
    own = {name: MEMORIES[name] for name in memories if MEMORIES[name].dims <= dims}
    if not own:
        return None
    outputs = point.graph()
    cotangents = point.cotangents_of(point.probe_of("reverse"), outputs)
    rounding = point.rounding if rounding is None else rounding
    for name, memory in own.items():
        special = tuple(map(memory.make, cotangents))
        values = vector(special)  # copied before the backward pass may write to the cotangents
        pulled = tried(partial(vjp, outputs, point.leaves, special))
        if isinstance(pulled, Exception):
            said = f"backward for {memory.words.format('cotangent')} {_raised(pulled)}"
            return Disagreement(said, "refused", memory=name, cause=pulled)
        gradient = vector(pulled)
        if memory.keeps and same(gradient, point.product("reverse"), rounding, rounding):
            continue
        plain = _instead_of(gradient, point, "reverse", values, rounding, rounding)
        if plain is None:
            continue
        off = (gradient - plain).abs().nan_to_num(nan=float("inf"))
        leaf = point.names.leaves[located(int(off.argmax()), point.leaves)[0]]
        text = (
            f"the gradient of {leaf} depends on the memory of the cotangent\n{memory.words.format('cotangent')} gives "
            f"one that is off by up to {float(off.max()):.4g} from that of a contiguous one with the same values"
        )
        return Disagreement(text, memory=name)
    return None


OF_LAYOUT = "autograd accepts it, as of an embedding with sparse = true: if that is meant, expect this failure"


def attributes(point: Point) -> Disagreement | None:
    """Return which gradient differs from its input in dtype, shape, layout or device, or None if none does.

    A gradient may always be strided. A sparse one must have as many sparse dimensions as its input.
    """
    outputs = point.graph()
    gradients = vjp(outputs, point.leaves, tuple(map(ones_like, outputs)))
    for name, gradient, leaf in zip(point.names.leaves, gradients, point.leaves, strict=True):
        for what in ("dtype", "shape", "device", "layout"):
            got, expected = getattr(gradient, what), getattr(leaf, what)
            if got != expected and not (what == "layout" and got is torch.strided):
                hint = f"\n{OF_LAYOUT}" if what == "layout" else ""
                return Disagreement(f"the gradient of {name} has the {what} {got}, not {expected}{hint}")
        if gradient.is_sparse and leaf.is_sparse and gradient.sparse_dim() != leaf.sparse_dim():
            dims, own = gradient.sparse_dim(), leaf.sparse_dim()
            return Disagreement(f"the gradient of {name} has {dims} sparse dimensions, not {own}")
    return None


def nondeterminism(point: Point, most: float, repeats: int = REPEATS) -> Disagreement | None:
    """Return by how much backward passes on one graph differ from the first, or None if by `most` at most.

    Passes on the exceptions of the first pass. An exception of a later pass is a disagreement.
    """
    outputs, cotangent = point.graph(), point.probe_of("reverse")

    def pulled() -> Tensor:
        return point.pulled(outputs, point.cotangents_of(cotangent, outputs))

    first = pulled()
    for _ in range(repeats):
        again = tried(pulled)
        if isinstance(again, Exception):
            return Disagreement(f"another backward pass on the same graph {_raised(again)}\n{KEPT}", cause=again)
        off = deviation(first, again)
        if not off <= most:
            return Disagreement(f"Backward is not reentrant: two backward passes differ by up to {off:.4g}")
    return None


def batching(point: Point, mode: Mode) -> Disagreement | None:
    """Return why a derivative cannot be vmapped, or how the result differs from a loop; None if they agree."""
    if not point.outputs:
        return None
    if mode == "reverse":
        cotangents = directions(point.size[0], point.projections, "outputs")
        vectors = torch.cat([cotangents, point.probe_of(mode).unsqueeze(0)])
    else:
        vectors = torch.stack([probe(point.size[1], number) for number in range(3)])
    batched = tried(lambda: point.vmapped(mode, vectors))
    if isinstance(batched, Exception):
        text = f"While computing batched gradients, got: {message_of(batched)}"
        return Disagreement(text, "refused", cause=batched)
    # torch compares with 1e-5 and 1e-8. In single precision, terms that cancel leave more.
    rtol, atol = max(1e-5, point.rounding), max(1e-8, point.rounding * largest(batched))
    expected = _instead_of(batched, point, mode, vectors, rtol, atol)
    if expected is None:
        return None
    off = float((batched - expected).abs().max())
    what = "backward pass" if mode == "reverse" else "jvp"
    return Disagreement(f"the vmapped {what} is not that of the loop: off by up to {off:.4g}")
