"""Outputs, gradients and tangents by ordinary calls, for directions that several functions are given alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from opcheck.checks.base import Subject
from opcheck.checks.calls import is_strided
from opcheck.checks.finer import cotangents_of
from opcheck.derivatives.autodiff import jvp, vjp
from opcheck.derivatives.cotangents import vectors_like
from opcheck.samples import Inputs, TestedFunction
from opcheck.samples.outputs import differentiable, with_gradient

Tensors = tuple[Tensor, ...]


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
            outputs = with_gradient(differentiable(subject.function(*subject.leaves)))
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
    """Those of a floating or complex dtype."""
    gradients: Tensors
    """One for each leaf."""
    tangents: Tensors
    """One for each output; empty without forward mode."""

    @classmethod
    def of(cls, function: TestedFunction, inputs: Inputs, directions: Directions) -> FirstOrder:
        """Call a function in both modes. Passes on its exceptions."""
        outputs, gradients = pulled_back(function, inputs, directions.cotangents)
        pushed = () if directions.tangents is None else pushed_forward(function, inputs, directions.tangents)
        return cls(outputs, gradients, pushed)


def pulled_back(function: TestedFunction, inputs: Inputs, cotangents: Tensors) -> tuple[Tensors, Tensors]:
    """Return the outputs of a call and the gradients of one backward pass. Passes on their exceptions."""
    with torch.enable_grad():
        outputs = differentiable(function(*inputs.leaves))
    pulled = with_gradient(outputs)
    converted = [v.to(output) for v, output in zip(cotangents, pulled, strict=True)]
    return outputs, vjp(pulled, inputs.leaves, converted)


def pushed_forward(function: TestedFunction, inputs: Inputs, tangents: Tensors) -> Tensors:
    """Return the tangents of the outputs by one call in forward mode. Passes on its exceptions."""
    converted = [t.to(leaf) for t, leaf in zip(tangents, inputs.leaves, strict=True)]
    return differentiable(jvp(function, [leaf.detach() for leaf in inputs.leaves], converted))


def differentiable_names(subject: Subject) -> list[str]:
    """Return what messages call the outputs of a floating or complex dtype."""
    named = zip(subject.output_names, subject.outputs, strict=True)
    return [name for name, output in named if differentiable([output])]


def names_of_parts(subject: Subject) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each field of `FirstOrder`, with what messages call the tensors in it."""
    outputs = differentiable_names(subject)
    yield "outputs", outputs
    yield "gradients", [f"the gradient of {name}" for name in subject.leaf_names]
    yield "tangents", [f"the tangent of {name}" for name in outputs]
