"""The full evidence for `opcheck.gradcheck`: on the caller's own tensors, moved in place, by single calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Differentiable, Mode, Pullback, Tensors, vjp
from opcheck.derivatives.coordinates import tensors_of, vector
from opcheck.derivatives.cotangents import vectors_like
from opcheck.derivatives.differences import Differences, differences
from opcheck.derivatives.point import Point
from opcheck.dropin.errors import ChangedOutputsError
from opcheck.dropin.memory import Kept, add, write
from opcheck.strides import with_gaps

Kind = tuple[torch.Size, torch.dtype]
"""The shape and the dtype of an output."""


class InPlace(Point):
    """Evidence without batches, whose numerical side moves the leaves themselves.

    A function may read a leaf in another way than as its argument: a captured parameter, a tensor that is given twice,
    a view of the same memory. It may need what only the caller's tensors have: a graph, hooks, a place in a larger
    storage.
    """

    can_batch = False

    def graph(self) -> Tensors:
        """Return the outputs of the first call: all backward passes use its graph, as in torch's gradcheck."""
        return super().graph() if self._outputs is None else self._outputs

    def looped_differences(self, along: Tensor, step: float) -> Differences:
        """Return the differences where the leaves themselves are moved, by one call for each point."""
        if not all(self.size):  # nothing to move, or nothing that moves
            return differences(self.value.repeat(1 + 2 * len(along), 1), step)
        moves = along * step
        values = moved(self.function, self.leaves, torch.cat([moves, -moves]), step)
        return Differences(values[: len(along)], self.value, values[len(along) :], step)

    def at(self, leaves: Tensors) -> Tensors:
        """Return the outputs where the leaves themselves have other values."""
        with Kept(self.leaves) as own, torch.enable_grad():
            for memory, values in zip(own.memory, leaves, strict=True):
                write(memory, values)
            return tuple(output.detach().clone() for output in self.function(*self.leaves))

    def pushed(self, tangents: Tensors) -> Tensor:
        """Return J u of shape (M,), by an ordinary call in forward mode, with tangents that are no views."""
        return super().pushed(tuple(tangent.clone() for tangent in tangents))

    def pulled(self, outputs: Tensors, cotangents: Tensors) -> Tensor:
        """Return J^T v of shape (N,), by an ordinary backward pass for each output, added up.

        An output takes no part in the pass of another one. That is not the same as a cotangent of zeros.
        """
        if len(outputs) == 1:
            return super().pulled(outputs, cotangents)
        gradient = torch.zeros(self.size[1], dtype=torch.float64)
        for output, own in zip(outputs, cotangents, strict=True):
            gradient += vector(vjp([output], self.leaves, [own])) if bool(own.any()) else 0
        return gradient

    def products(self, mode: Mode, directions: Tensor) -> Tensor:
        """Return V J or U J^T by ordinary calls. An empty Jacobian takes none."""
        if all(self.size):
            return super().products(mode, directions)
        return directions.new_zeros(len(directions), self.size[1 if mode == "reverse" else 0])


@dataclass(frozen=True)
class Second:
    """The second order: the gradients of a function, as functions of its leaves and of cotangents."""

    cotangents: Tensors | None
    """Those that do not require grad are constant. None: random ones."""
    gaps: bool
    """Whether random ones have gaps in memory."""

    def of(self, point: Point) -> tuple[Pullback, Tensors]:
        """Return the gradients of the function of a point, and the tensors that they are differentiated at."""
        vectors, fixed = self.cotangents, tuple[Tensor | None, ...]()
        if vectors is None:
            plain = vectors_like(point.outputs, 1)
            vectors = tuple((with_gaps(v) if self.gaps else v).requires_grad_() for v in plain)
        else:
            fixed = tuple(None if v.requires_grad else v for v in vectors)
        leaves = *point.leaves, *(v for v in vectors if v.requires_grad)
        return Pullback(point.function, len(point.leaves), fixed=fixed), leaves


def moved(function: Differentiable, leaves: Sequence[Tensor], steps: Tensor, step: float) -> Tensor:
    """Return the values at some steps from the leaves as rows, with one call per step, on the leaves themselves.

    Each leaf is moved where it is, so that a function that reads it in another way than as its argument is moved too.
    Raises ChangedOutputsError; passes on the exceptions of the function. The leaves are as before in either case.
    """
    rows, expected = [], None
    with Kept(leaves) as own, torch.enable_grad():
        for row in steps:
            before = [memory.clone() for memory in own.memory]
            moves = tensors_of(row, own.memory)
            for memory, move in zip(own.memory, moves, strict=True):
                add(memory, move)  # a leaf that is given twice moves with each of its places
            outputs = function(*leaves)
            rows.append(vector(outputs))
            for memory, move, values in zip(own.memory, moves, before, strict=True):  # what the function wrote remains
                write(memory, values, move != 0)
            kinds = [(output.shape, output.dtype) for output in outputs]
            if kinds != expected:
                _expect_same(expected := expected or kinds, kinds, step)
    return torch.stack(rows)


def _expect_same(expected: Sequence[Kind], got: Sequence[Kind], step: float) -> None:
    kinds = zip(*expected, strict=True), zip(*got, strict=True)
    for what, one, other in zip(("shape", "dtype"), *kinds, strict=False):
        if one != other:
            raise ChangedOutputsError(
                f"Expected `func` to return outputs with the same {what} when inputs are perturbed by {step}, but got: "
                f"{what}s {', '.join(map(str, one))} and {', '.join(map(str, other))}."
            )
