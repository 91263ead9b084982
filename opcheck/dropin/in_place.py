"""The full comparison of `opcheck.gradcheck`: single calls on the caller's own tensors, which are moved in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.autograd.gradcheck import GradcheckError

from opcheck.derivatives.autodiff import Differentiable, Pullback, Tensors, vjp
from opcheck.derivatives.by_torch import ALL_OFF, QUESTIONS
from opcheck.derivatives.coordinates import tensors_of, vector
from opcheck.derivatives.cotangents import vectors_like
from opcheck.derivatives.differences import Differences, differences
from opcheck.derivatives.point import Point
from opcheck.dropin.errors import ChangedOutputsError
from opcheck.dropin.memory import Kept, add, aside, write
from opcheck.dropin.passes import kinds_of, plain
from opcheck.strides import with_gaps

Kind = tuple[torch.Size, torch.dtype]
"""The shape and the dtype of an output."""
Second = Callable[[Point], tuple[Pullback, Tensors]]
"""The function that gradgradcheck tests at a point: the gradients, as a function of leaves and cotangents."""


class InPlace(Point):
    """A point that uses no batches, and moves the leaves in place for finite differences.

    A function may read a leaf in another way than as its argument: as a captured parameter, as a tensor that is passed
    twice, or through a view of the same memory. It may need properties of the caller's tensors that copies do not have:
    a graph, hooks, a place in a larger storage.
    """

    can_batch = False

    def graph(self) -> Tensors:
        """Return the outputs of the first call: all backward passes use its graph, as in torch's gradcheck."""
        return super().graph() if self._outputs is None else self._outputs

    def looped_differences(self, along: Tensor, step: float) -> Differences:
        """Return the differences along directions of shape (K, N), by one call per point, with the leaves moved."""
        if not all(self.size):  # an empty Jacobian
            return differences(self.value.repeat(1 + 2 * len(along), 1), step)
        moves = along * step
        values = moved(self.function, self.leaves, torch.cat([moves, -moves]), step)
        return differences(values, step, self.value)

    def at(self, leaves: Tensors) -> Tensors:
        """Return the outputs for other values of the leaves, which are written to the leaves during the call."""
        with Kept(self.leaves) as own, torch.enable_grad():
            for memory, values in zip(own.memory, leaves, strict=True):
                write(memory, values)
            return tuple(output.detach().clone() for output in self.function(*self.leaves))

    def pushed(self, tangents: Tensors) -> Tensor:
        """Return J u of shape (M,), by an ordinary call in forward mode, on tangents that are not views."""
        return super().pushed(tuple(tangent.clone() for tangent in tangents))

    def cotangents_of(self, direction: Tensor, outputs: Tensors) -> Tensors:
        """Return the cotangents with some coordinates, in contiguous memory, as in torch's gradcheck."""
        return tensors_of(direction, plain(kinds_of(outputs)))

    def pulled(self, outputs: Tensors, cotangents: Tensors) -> Tensor:
        """Return J^T v of shape (N,), as the sum of an ordinary backward pass for each output.

        The other outputs are left out of each pass, which is not the same as passing zeros as their cotangents.
        """
        if len(outputs) == 1:
            return super().pulled(outputs, cotangents)
        gradient = torch.zeros(self.size[1], dtype=torch.float64, device="cpu")
        for output, own in zip(outputs, cotangents, strict=True):
            gradient += vector(vjp([output], self.leaves, [own])) if bool(own.any()) else 0
        return gradient


def pullback_of(point: Point, cotangents: Tensors | None, gaps: bool) -> tuple[Pullback, Tensors]:
    """Return the pullback of the function of a point, and its inputs: leaves, and cotangents that require grad.

    cotangents: those that do not require grad are constant. None: random ones, with gaps in memory if `gaps`.
    """
    if cotangents is None:
        plain = vectors_like(point.outputs, 1)
        cotangents = tuple((with_gaps(v) if gaps else v).requires_grad_() for v in plain)
    fixed = tuple(None if v.requires_grad else v for v in cotangents)
    leaves = *point.leaves, *(v for v in cotangents if v.requires_grad)
    return Pullback(point.function, len(point.leaves), fixed=fixed), leaves


def is_batched_by_torch(point: Point, check: str) -> bool:
    """Return whether the vmap of torch's gradcheck, which knows other operators than `torch.func.vmap`, can batch.

    check: the claim, "batched_grad" or "batched_forward_grad".
    """
    try:
        with aside(point.leaves):
            return gradcheck(point.function, point.leaves, **ALL_OFF | QUESTIONS[check])
    except GradcheckError:
        return False


def moved(function: Differentiable, leaves: Sequence[Tensor], steps: Tensor, step: float) -> Tensor:
    """Return the outputs at the leaves plus each row of `steps`, as rows, by one call per step.

    The leaves are moved in place, so that a function that reads them in another way than as its arguments is moved,
    too. They are restored afterwards, also after an exception. Raises ChangedOutputsError if the shapes or dtypes of
    the outputs change; exceptions of the function propagate.
    step: the size of the steps, for messages.
    """
    rows, expected = [], None
    with Kept(leaves) as own, torch.enable_grad():
        for row in steps:
            before = [memory.clone() for memory in own.memory]
            moves = tensors_of(row, own.memory)
            for memory, move in zip(own.memory, moves, strict=True):
                add(memory, move)  # a leaf that is passed twice moves twice
            outputs = function(*leaves)
            rows.append(vector(outputs))
            for memory, move, values in zip(own.memory, moves, before, strict=True):  # keeps what the function wrote
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
