"""Calls of an operator as users make them: a forward pass, a backward pass for fixed cotangents, and forward mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from opcheck.checks.subject import Subject
from opcheck.checks.verdict import Raised
from opcheck.derivatives import tried
from opcheck.derivatives.autodiff import Tensors, jvp, pushed, vjp
from opcheck.derivatives.coordinates import are_strided, tensors_of, vector
from opcheck.derivatives.cotangents import probe, vectors_like
from opcheck.derivatives.sparse import ones_like
from opcheck.samples.cache import once
from opcheck.samples.layouts import copied, own
from opcheck.samples.results import differentiable, leaves_of, unnested, with_gradient

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Call:
    """A call with leaves that no other call shares.

    The graph is retained, unless a backward pass runs with `retain_graph=False`.
    """

    leaves: Tensors
    results: Tensors
    """The outputs under test."""

    @classmethod
    def of(cls, subject: Subject, leaves: Sequence[Tensor] | None = None) -> Call:
        """Call the operator and return the call. `leaves` defaults to copies of the leaves of the sample."""
        at = copies(subject.leaves) if leaves is None else tuple(leaves)
        return cls(at, subject.function(*at))

    @cached_property
    def outputs(self) -> Tensors:
        """The outputs under test of a floating or complex dtype."""
        return differentiable(self.results)

    @property
    def has_graph(self) -> bool:
        """Whether any output requires grad."""
        return any(output.requires_grad for output in self.outputs)

    @cached_property
    def cotangents(self) -> Tensors:
        """Random cotangents of the outputs, equal in each call; ones if any output is not strided."""
        if are_strided(self.outputs):
            return vectors_like(self.outputs)
        return tuple(map(ones_like, self.outputs))

    def gradients(
        self, cotangents: Iterable[Tensor] | None = None, *, create_graph: bool = False, retain_graph: bool = True
    ) -> Tensors:
        """Run one backward pass and return the gradients of all leaves. The default cotangents are `cotangents`."""
        if not any(leaf.requires_grad for leaf in self.leaves):  # the operator has no derivative
            return tuple(map(torch.zeros_like, self.leaves))
        vectors = self.cotangents if cotangents is None else cotangents
        alike = [v.to(output) for v, output in zip(vectors, self.outputs, strict=True)]
        return vjp(self.outputs, self.leaves, alike, create_graph=create_graph, retain_graph=retain_graph)

    @property
    def values(self) -> Tensor:
        """The outputs of a floating or complex dtype as real coordinates, of shape (M,)."""
        return vector(self.outputs)

    def gradient(self, cotangents: Iterable[Tensor] | None = None, *, create_graph: bool = False) -> Tensor:
        """Return the gradients of all leaves as real coordinates, of shape (N,)."""
        return vector(self.gradients(cotangents, create_graph=create_graph))

    def again(self, cotangents: Sequence[Tensor]) -> Call:
        """Run the backward pass for cotangents that require grad. Return it as a call, to differentiate it again.

        The leaves of the returned call are the leaves and the cotangents, its results the gradients that require grad.
        """
        pulled = self.gradients(cotangents, create_graph=True)
        return Call((*self.leaves, *cotangents), with_gradient(pulled))


def recorded(subject: Subject) -> Call:
    """Call the operator with grad mode enabled, at leaves that keep their memory layout, even lazy or expanded ones."""
    with torch.enable_grad():
        return Call.of(subject, tuple(map(own, subject.leaves)))


def push(subject: Subject, tangents: Iterable[Tensor]) -> Tensors:
    """Return the tangents of the differentiable outputs by one call in forward mode."""
    leaves = [leaf.detach() for leaf in map(own, subject.leaves)]
    return differentiable(jvp(subject.function, leaves, [t.to(leaf) for t, leaf in zip(tangents, leaves, strict=True)]))


def has_tangents(subject: Subject) -> bool:
    """Return whether any output carries a tangent in forward mode. Passes on exceptions."""
    leaves = [leaf.detach() for leaf in subject.leaves]
    _, tangents = pushed(subject.function, leaves, [torch.ones_like(leaf) for leaf in leaves])
    return any(tangent is not None for tangent in tangents)


def tangents_of(subject: Subject) -> Tensors:
    """Return random tangents of the leaves, equal in each call.

    Returns an empty tuple if forward mode is not claimed or any leaf is not strided.
    """
    return vectors_like(subject.leaves, 1) if subject.supports.forward_ad and are_strided(subject.leaves) else ()


def copies(leaves: Sequence[Tensor]) -> Tensors:
    """Return writable copies of leaves, with the same values and strides. They require grad if the leaves do."""
    return tuple(copied(leaf.detach()).requires_grad_(leaf.requires_grad) for leaf in leaves)


def as_results(leaves: Sequence[Tensor]) -> Tensors:
    """Return differentiable copies with the same values and strides: non-leaf tensors, as inputs within a network."""
    return tuple(map(copied, leaves))


def tensors_among(args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors among the arguments of a call, each with its name in messages.

    names: the names of the positional parameters, as far as they are known.
    """
    for path, part in parts_of(args, kwargs, names):
        if isinstance(part, Tensor):
            yield from unnested(path, part)


def parts_of(args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield all items of the arguments of a call that are not containers, each with its name in messages.

    names: the names of the positional parameters, as far as they are known.
    """
    positional = [(names[index] if index < len(names) else str(index), item) for index, item in enumerate(args)]
    for name, item in (*positional, *kwargs.items()):
        yield from leaves_of(item, f"argument {name}")


@dataclass(frozen=True)
class Result:
    """The results of a call as real coordinates: copies, which no operator can write to."""

    values: Tensor
    """The outputs of a floating or complex dtype, of shape (M,)."""
    gradient: Tensor
    """The gradients of all leaves, of shape (N,); empty if no backward pass is claimed."""
    has_graph: bool
    """Whether any output requires grad."""


def result(subject: Subject, call: Call | None = None) -> Result:
    """Return the result of a call. By default, the operator is called at copies of the leaves."""
    call = Call.of(subject) if call is None else call
    values = call.values
    return Result(values, call.gradient() if subject.supports.backward else values.new_zeros(0), call.has_graph)


@once
def ordinary(subject: Subject) -> Result:
    """Return the result of an ordinary call at a sample. It is computed once per group of checks.

    Raises Raised if the backward pass raises.
    """
    call = recorded(subject)
    return required("an ordinary backward pass", lambda: result(subject, call), check="backward")


def required(what: str, call: Callable[[], T], code: str = "", check: str = "") -> T:
    """Return what `call` returns. Raises Raised in place of an exception. The other parameters are those of Raised."""
    got = tried(call)
    if isinstance(got, Exception):
        raise Raised(what, got, code, check) from got
    return got


def slope(subject: Subject, direction: Tensor, step: float) -> Tensor:
    """Return the derivative along a direction by central differences, of shape (M,).

    If the operator has a surrogate, the derivative is that of the surrogate.
    """
    leaves = tuple(leaf.detach() for leaf in subject.leaves)
    point = vector(leaves)
    function = subject.function.surrogate or subject.function
    moved = (tensors_of(point + h * direction, leaves) for h in (step, -step))
    above, below = (vector(differentiable(function(*at))) for at in moved)
    return (above - below) / (2 * step)


def direction_of(subject: Subject) -> Tensor:
    """Return a random direction of the leaves, of shape (N,), equal in each call."""
    return probe(len(vector(subject.leaves)), 1)


def differentiate(subject: Subject, times: int) -> None:
    """Run the backward pass of the backward pass, and so on, for all leaves, as `loss.backward()` does.

    A function marked `@once_differentiable` raises here. If only some gradients are requested, as by torch's
    gradgradcheck, autograd skips the function and returns zeros. Passes on its exceptions.

    times: how often to differentiate, at least once.
    """
    call = Call.of(subject)
    for _ in range(times - 1):
        call = call.again([ones_like(output).requires_grad_() for output in call.outputs])
    if call.results:
        torch.autograd.backward(call.results, [ones_like(result) for result in call.results])
