"""Calls of an operator, as users make them: forward, a backward pass for fixed cotangents, and forward mode.

What a call returns is compared with what other calls return that must give the same: under another grad mode, for
scaled cotangents, after an input has changed, in another dtype or on another device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.verdict import HOLDS, Blocked, Verdict, blocked, fails, one_line
from opcheck.derivatives import NO_REFUSAL
from opcheck.derivatives.autodiff import jvp, vjp
from opcheck.derivatives.coordinates import largest_difference, vector
from opcheck.derivatives.cotangents import vectors_like
from opcheck.derivatives.sparse import ones_like
from opcheck.samples import TestedFunction
from opcheck.samples.results import differentiable, with_gradient

Tensors = tuple[Tensor, ...]

ROUNDING = 1e4
"""How many rounding units two calls may differ by that do the same in another order."""

REPEATS = 3
"""How many ordinary calls must agree before another call is accused of giving something else."""


@dataclass(frozen=True)
class Result:
    """What a call gave, as vectors of real coordinates: plain numbers, which no operator can write to."""

    value: Tensor
    """The outputs of a floating or complex dtype, of shape (M,)."""
    gradient: Tensor
    """The gradients of all leaves, of shape (N,)."""


@dataclass(frozen=True, eq=False)
class Call:
    """A call with leaves that nobody else has."""

    leaves: Tensors
    results: Tensors
    """The outputs under test."""

    @classmethod
    def of(cls, subject: Subject, leaves: Sequence[Tensor] | None = None) -> Call:
        """Call the operator, at copies of the leaves of the sample unless others are given."""
        own = copies(subject.leaves) if leaves is None else tuple(leaves)
        return cls(own, subject.function(*own))

    @cached_property
    def outputs(self) -> Tensors:
        """The outputs under test of a floating or complex dtype."""
        return differentiable(self.results)

    @cached_property
    def cotangents(self) -> Tensors:
        """Cotangents for the outputs: the same numbers in each call."""
        return vectors_like(self.outputs)

    def pulled_back(self, cotangents: Sequence[Tensor] | None = None) -> Tensor:
        """Return the gradients of all leaves by one backward pass, of shape (N,). The graph is retained."""
        return vector(vjp(self.outputs, self.leaves, self.cotangents if cotangents is None else cotangents))

    def gradients(self, cotangents: Sequence[Tensor]) -> Tensors:
        """Return the gradients that can be differentiated themselves, for cotangents that require grad."""
        pulled = vjp(self.outputs, self.leaves, cotangents, create_graph=True)
        return tuple(gradient for gradient in pulled if gradient.requires_grad)

    def pulled_back_twice(self, cotangents: Sequence[Tensor]) -> Tensor:
        """Return the gradients of the gradients: of all leaves, and of the cotangents, of shape (N + M,)."""
        return Call((*self.leaves, *cotangents), self.gradients(cotangents)).pulled_back()


@dataclass(frozen=True)
class Directions:
    """Cotangents for the outputs that require grad, and tangents for the leaves."""

    cotangents: Tensors
    tangents: Tensors | None
    """None: forward mode is not claimed, or the leaves are not strided."""

    @classmethod
    def of(cls, subject: Subject) -> Directions:
        """Return random directions in the dtypes of a sample. There are no cotangents if no output requires grad."""
        with torch.enable_grad():
            outputs = with_gradient(subject.function(*subject.leaves))
        forward = subject.supports.forward_ad and is_strided(subject)
        return cls(cotangents_of(outputs), vectors_like(subject.leaves, 1) if forward else None)

    def changed(self, change: Callable[[Tensor], Tensor]) -> Directions:
        """Return the same directions with each tensor changed."""
        tangents = None if self.tangents is None else tuple(map(change, self.tangents))
        return Directions(tuple(map(change, self.cotangents)), tangents)


@dataclass(frozen=True)
class FirstOrder:
    """What a function gives at a point, and its first derivatives in some directions."""

    outputs: Tensors
    gradients: Tensors
    """One for each leaf."""
    tangents: Tensors
    """One for each output of a floating or complex dtype; empty without forward mode."""

    @classmethod
    def of(cls, function: TestedFunction, directions: Directions) -> FirstOrder:
        """Call a function in both modes, at the leaves of its inputs. Passes on its exceptions."""
        outputs, gradients = pulled_back(function, directions.cotangents)
        return cls(outputs, gradients, () if directions.tangents is None else pushed(function, directions.tangents))


def outputs_of(function: TestedFunction) -> Tensors:
    """Return the outputs under test at the leaves of the function's inputs."""
    with torch.no_grad():
        return function(*function.inputs.leaves)


def pulled_back(function: TestedFunction, cotangents: Tensors) -> tuple[Tensors, Tensors]:
    """Return the outputs of a call and the gradients of one backward pass. Passes on their exceptions."""
    leaves = function.inputs.leaves
    with torch.enable_grad():
        outputs = function(*leaves)
    pulled = with_gradient(outputs)
    return outputs, vjp(pulled, leaves, [v.to(output) for v, output in zip(cotangents, pulled, strict=True)])


def pushed(function: TestedFunction, tangents: Tensors) -> Tensors:
    """Return the tangents of the outputs by one call in forward mode. Passes on its exceptions."""
    leaves = [leaf.detach() for leaf in function.inputs.leaves]
    return differentiable(jvp(function, leaves, [t.to(leaf) for t, leaf in zip(tangents, leaves, strict=True)]))


def cotangents_of(outputs: Sequence[Tensor]) -> Tensors:
    """Return random cotangents, the same ones each time; ones for outputs that are not strided."""
    if all(output.layout is torch.strided for output in outputs):
        return vectors_like(outputs)
    return tuple(torch.ones_like(output) for output in outputs)


def names_of_parts(subject: Subject) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each field of `FirstOrder`, with what messages call the tensors in it."""
    named = zip(subject.output_names, subject.outputs, strict=True)
    yield "outputs", subject.output_names
    yield "gradients", [f"the gradient of {name}" for name in subject.leaf_names]
    yield "tangents", [f"the tangent of {name}" for name, output in named if differentiable([output])]


def result(call: Call, subject: Subject) -> Result:
    """Return the values of a call and, where a backward pass is claimed, its gradients."""
    claimed = subject.supports.backward
    return Result(vector(call.outputs), call.pulled_back() if claimed else torch.zeros(0, dtype=torch.float64))


def copies(leaves: Sequence[Tensor], scale: float = 1.0) -> tuple[Tensor, ...]:
    """Return leaves of the same values, or scaled ones, in the same memory format. They require grad."""
    return tuple(_copy(leaf, scale).requires_grad_() for leaf in leaves)


def _copy(leaf: Tensor, scale: float) -> Tensor:
    """Return a copy that is no view: autograd keeps track of what happens to the tensor that a view is of."""
    values = leaf.detach() if scale == 1 else leaf.detach() * scale
    if leaf.layout is not torch.strided or leaf.is_contiguous() or 0 in leaf.stride() or leaf.is_conj():
        return values.clone()
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device).copy_(values)


def is_strided(subject: Subject) -> bool:
    """Tell whether all leaves are strided, so that they can have tangents."""
    return all(leaf.layout is torch.strided for leaf in subject.leaves)


def tangents(subject: Subject) -> tuple[Tensor, ...]:
    """Return tangents for the leaves: the same numbers each time."""
    return vectors_like(subject.leaves)


def pushed_forward(subject: Subject, vectors: Sequence[Tensor]) -> Tensor:
    """Return the tangents of the outputs for tangents of the leaves by one call in forward mode, of shape (M,).

    Raises Blocked if forward mode does not work for ordinary tangents.
    """
    leaves = [leaf.detach() for leaf in copies(subject.leaves)]
    try:
        return vector(differentiable(jvp(subject.function, leaves, vectors)))
    except NO_REFUSAL:
        raise
    except Exception:
        _forward_works(subject)
        raise


def _forward_works(subject: Subject) -> None:
    try:
        jvp(subject.function, [leaf.detach() for leaf in copies(subject.leaves)], tangents(subject))
    except Exception as error:
        raise Blocked("forward_ad", f"an ordinary call in forward mode raised {one_line(error)}") from error


def ordinary(subject: Subject) -> Result:
    """Return what an ordinary call gives at a sample. The first check of a group finds out for all.

    Raises Blocked if the backward pass does not work.
    """
    return subject.memo.once("ordinary", lambda: _ordinary(subject))


def _ordinary(subject: Subject) -> Result:
    call = Call.of(subject)
    try:
        return result(call, subject)
    except NO_REFUSAL:
        raise
    except Exception as error:
        raise Blocked("backward", f"an ordinary backward pass raised {one_line(error)}") from error


def differentiate_twice(subject: Subject) -> None:
    """Run the backward pass of backward, as `loss.backward()` does. Passes on its exceptions.

    A function marked `@once_differentiable` raises here. Asked for some gradients only, as torch's gradgradcheck asks,
    autograd skips it, and returns zeros.
    """
    call = Call.of(subject)
    gradients = call.gradients([torch.ones_like(output).requires_grad_() for output in call.outputs])
    if gradients:
        torch.autograd.backward(gradients, [ones_like(gradient) for gradient in gradients])


def off_by(subject: Subject, got: Tensor, expected: Tensor) -> float:
    """Return by how much two vectors differ; 0 if they agree up to rounding, or up to what the spec allows two calls.

    NaN agrees with NaN, and an infinity with itself.
    """
    if torch.equal(got, expected):
        return 0.0
    if got.shape != expected.shape:
        return float("inf")
    context = subject.context
    finite = expected[expected.isfinite()].abs()
    rounding = ROUNDING * torch.finfo(context.dtype).eps * (1.0 + (float(finite.max()) if finite.numel() else 0.0))
    random = context.case.claims.tolerance("nondeterminism", context.case.dtype).nondeterminism or 0.0
    if torch.allclose(got, expected, 0.0, max(rounding, random), equal_nan=True):
        return 0.0
    difference = largest_difference(got, expected)
    return difference if difference == difference else float("inf")


def compared(subject: Subject, what: str, got: Tensor, expected: Tensor) -> Verdict:
    """Return whether a call gave what it should.

    what: as in "the gradients under torch.no_grad()".
    """
    off = off_by(subject, got, expected)
    if not off:
        return HOLDS
    if not is_steady(subject):
        return random(subject)
    return fails(f"{subject.check}: {what} differ from those of an ordinary call", f"by up to {off:.4g}")


def is_steady(subject: Subject) -> bool:
    """Tell whether ordinary calls give the same each time."""
    expected = ordinary(subject)
    again = [result(Call.of(subject), subject) for _ in range(REPEATS)]
    return not any(
        off_by(subject, one.value, expected.value) or off_by(subject, one.gradient, expected.gradient) for one in again
    )


def random(subject: Subject) -> Verdict:
    """Return the verdict on a sample at which ordinary calls differ, so that no comparison says anything."""
    return blocked("nondeterminism", f"{subject.check}: ordinary calls do not give the same each time")
