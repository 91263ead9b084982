"""Calls of an operator, as users make them: forward, a backward pass for fixed cotangents, and forward mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from opcheck.checks.subject import Subject
from opcheck.checks.verdict import Blocked
from opcheck.derivatives import tried
from opcheck.derivatives.autodiff import jvp, pushed, vjp
from opcheck.derivatives.coordinates import tensors_of, vector
from opcheck.derivatives.cotangents import probe, vectors_like
from opcheck.derivatives.sparse import ones_like
from opcheck.samples.layouts import own
from opcheck.samples.results import differentiable, leaves_of, plain
from opcheck.text import one_line

T = TypeVar("T")
Tensors = tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Call:
    """A call with leaves that nobody else has. Its graph is retained, unless a backward pass uses it up."""

    leaves: Tensors
    results: Tensors
    """The outputs under test."""

    @classmethod
    def of(cls, subject: Subject, leaves: Sequence[Tensor] | None = None) -> Call:
        """Call the operator, at copies of the leaves of the sample unless others are given."""
        at = copies(subject.leaves) if leaves is None else tuple(leaves)
        return cls(at, subject.function(*at))

    @cached_property
    def outputs(self) -> Tensors:
        """The outputs under test of a floating or complex dtype."""
        return differentiable(self.results)

    @property
    def has_graph(self) -> bool:
        """Whether any output has a backward pass."""
        return any(output.requires_grad for output in self.outputs)

    @cached_property
    def cotangents(self) -> Tensors:
        """Cotangents for the outputs: the same numbers in each call; ones if an output is not strided."""
        if all(output.layout is torch.strided for output in self.outputs):
            return vectors_like(self.outputs)
        return tuple(torch.ones_like(output) for output in self.outputs)

    def gradients(
        self, cotangents: Iterable[Tensor] | None = None, *, create_graph: bool = False, retain_graph: bool = True
    ) -> Tensors:
        """Return the gradients of all leaves by one backward pass."""
        vectors = self.cotangents if cotangents is None else cotangents
        alike = [v.to(output) for v, output in zip(vectors, self.outputs, strict=True)]
        return vjp(self.outputs, self.leaves, alike, create_graph=create_graph, retain_graph=retain_graph)

    @property
    def values(self) -> Tensor:
        """The outputs as real coordinates, of shape (M,)."""
        return vector(self.outputs)

    def gradient(self, cotangents: Iterable[Tensor] | None = None, *, create_graph: bool = False) -> Tensor:
        """Return the gradients as real coordinates, of shape (N,)."""
        return vector(self.gradients(cotangents, create_graph=create_graph))

    def again(self, cotangents: Sequence[Tensor]) -> Call:
        """Return the backward pass for cotangents that require grad as a call itself, of leaves and cotangents."""
        pulled = self.gradients(cotangents, create_graph=True)
        return Call((*self.leaves, *cotangents), tuple(gradient for gradient in pulled if gradient.requires_grad))


def recorded(subject: Subject) -> Call:
    """Call the operator at the leaves as they lie in memory, with a graph whatever the grad mode is."""
    with torch.enable_grad():
        return Call.of(subject, as_they_are(subject))


def push(subject: Subject, tangents: Iterable[Tensor]) -> Tensors:
    """Return the tangents of the outputs by one call in forward mode."""
    leaves = [leaf.detach() for leaf in as_they_are(subject)]
    return differentiable(jvp(subject.function, leaves, [t.to(leaf) for t, leaf in zip(tangents, leaves, strict=True)]))


def has_tangents(subject: Subject) -> bool:
    """Tell whether any output carries a tangent. Passes on the exceptions of forward mode."""
    leaves = [leaf.detach() for leaf in subject.leaves]
    _, tangents = pushed(subject.function, leaves, [torch.ones_like(leaf) for leaf in leaves])
    return any(tangent is not None for tangent in tangents)


def tangents_of(subject: Subject) -> Tensors:
    """Return tangents for the leaves: the same numbers each time.

    There are none if forward mode is not claimed, or the leaves are not strided.
    """
    return vectors_like(subject.leaves, 1) if subject.supports.forward_ad and is_strided(subject) else ()


def as_they_are(subject: Subject) -> Tensors:
    """Return leaves in the memory that those of the sample have: copies, but for lazy views and expanded tensors."""
    return tuple(map(own, subject.leaves))


def copies(leaves: Sequence[Tensor]) -> Tensors:
    """Return leaves of the same values and strides, which may be written to. They require grad."""
    return tuple(_copy(leaf.detach()).requires_grad_() for leaf in leaves)


def results_like(leaves: Sequence[Tensor]) -> Tensors:
    """Return tensors of the same values and strides that are results of an operation, as inputs in a network are."""
    return tuple(map(_copy, leaves))


def _copy(tensor: Tensor) -> Tensor:
    """Return a copy that is no view: autograd keeps track of what happens to the tensor that a view is of."""
    clone = tensor.clone()  # the backward pass of copy_() takes no sparse gradient
    is_strided = tensor.layout is torch.strided and 0 not in tensor.stride() and not tensor.is_conj()
    if not is_strided or clone.stride() == tensor.stride():
        return clone
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def tensors_among(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors among the arguments of a call, with what messages call them."""
    for index, item in (*enumerate(args), *kwargs.items()):
        for path, part in leaves_of(item):
            if isinstance(part, Tensor):
                yield from plain(f"argument {index}{path}", part)


def is_strided(subject: Subject) -> bool:
    """Tell whether all leaves are strided, so that they can have tangents."""
    return all(leaf.layout is torch.strided for leaf in subject.leaves)


@dataclass(frozen=True)
class Result:
    """What a call gave, as vectors of real coordinates: plain numbers, which no operator can write to."""

    values: Tensor
    """The outputs of a floating or complex dtype, of shape (M,)."""
    gradient: Tensor
    """The gradients of all leaves, of shape (N,); empty where no backward pass is claimed."""
    has_graph: bool
    """Whether any output has a backward pass."""


def result(subject: Subject, call: Call | None = None) -> Result:
    """Return what a call gives: by default a new one, at copies of the leaves."""
    call = Call.of(subject) if call is None else call
    values = call.values
    return Result(values, call.gradient() if subject.supports.backward else values.new_zeros(0), call.has_graph)


def ordinary(subject: Subject) -> Result:
    """Return what an ordinary call gives at a sample. The first check of a group finds out for all.

    Raises Blocked if the backward pass does not work.
    """
    return subject.memo.once("ordinary", lambda: _ordinary(subject))


def _ordinary(subject: Subject) -> Result:
    call = Call.of(subject, as_they_are(subject))
    return require("backward", "an ordinary backward pass", lambda: result(subject, call))


def require(check: str, what: str, call: Callable[[], T]) -> T:
    """Return what an ordinary call gives. Raises Blocked, by the check that says why, if that raises."""
    got = tried(call)
    if isinstance(got, Exception):
        raise Blocked(check, f"{what} raised {one_line(got)}") from got
    return got


def slope(subject: Subject, direction: Tensor, step: float) -> Tensor:
    """Return the derivative that is meant along a direction by central differences, of shape (M,)."""
    leaves = tuple(leaf.detach() for leaf in subject.leaves)
    point = vector(leaves)
    function = subject.function.surrogate or subject.function
    moved = (tensors_of(point + h * direction, leaves) for h in (step, -step))
    above, below = (vector(differentiable(function(*at))) for at in moved)
    return (above - below) / (2 * step)


def direction_of(subject: Subject) -> Tensor:
    """Return a random direction for the leaves, of shape (N,): the same one each time."""
    return probe(len(vector(subject.leaves)), 1)


def differentiate_twice(subject: Subject) -> None:
    """Run the backward pass of backward, as `loss.backward()` does. Passes on its exceptions.

    A function marked `@once_differentiable` raises here. Asked for some gradients only, as torch's gradgradcheck asks,
    autograd skips it, and returns zeros.
    """
    call = Call.of(subject)
    pulled = call.again([torch.ones_like(output).requires_grad_() for output in call.outputs])
    if pulled.results:
        torch.autograd.backward(pulled.results, [ones_like(gradient) for gradient in pulled.results])
