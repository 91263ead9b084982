"""The evidence for `opcheck.gradcheck`: on the caller's own tensors, moved in place where copies are not the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Differentiable, Mode, Pullback, Tensors, pushforward, vjp
from opcheck.derivatives.batching import FEW, Batched, sweep
from opcheck.derivatives.coordinates import (
    probe,
    shares_memory,
    steps,
    tensors_of,
    vector,
)
from opcheck.derivatives.differences import Differences, differences
from opcheck.derivatives.evidence import Evidence
from opcheck.derivatives.point import Point
from opcheck.derivatives.question import Request

Kind = tuple[torch.Size, torch.dtype]
"""The shape and the dtype of an output."""


class InPlace(Evidence):
    """Evidence whose numerical side moves the leaves themselves, unless moving copies comes to the same.

    A function may read a leaf in another way than as its argument: a captured parameter, a tensor that is given twice,
    a view of the same memory. It may need what only the caller's tensors have: a graph, hooks, a place in a larger
    storage. Evidence from copies is then about another function. One call on the leaves, moved by a random step,
    tells.
    """

    _alone = False
    """Whether batches of points were given up: what one step needs, the others need too."""

    def batched_differences(self, along: Tensor, step: float) -> Differences | None:
        """Return the differences from a batch of copies; None if it fails, or is about another function."""
        if self._alone or self.size[1] <= FEW or not all(self.size):
            return None
        found = self._of_batch(along, step)
        self._alone = found is None
        return found

    def looped_differences(self, along: Tensor, step: float) -> Differences:
        """Return the differences where the leaves themselves are moved, by one call for each point."""
        moves = steps(along, step)
        if not all(self.size):  # nothing to move, or nothing that moves
            return differences(self.value.repeat(len(moves), 1), step)
        return differences(moved(self.function, self.leaves, moves, step), step)

    def _of_batch(self, along: Tensor, step: float) -> Differences | None:
        weights = probe(len(along), 2)
        one = (weights @ along * step).unsqueeze(0)
        points = self.point + torch.cat([one, steps(along, step)])
        try:
            values = sweep(self.function, self.leaves, points, batch=self.chunk).values
        except Exception:  # it cannot be batched
            return None
        found = differences(values[1:], step)
        return found if self._moves_alike(one, values[0], found, weights) else None

    def _moves_alike(self, one: Tensor, copied: Tensor, found: Differences, weights: Tensor) -> bool:
        """Tell whether the leaves themselves, moved by a random step, give what copies give, up to rounding."""
        off = moved(self.function, self.leaves, one, found.step)[0] - copied
        slope = found.jacobian.abs() @ weights.abs()
        return bool((off.abs() <= 1e-6 * found.step * slope + 32 * self.unit * copied.abs()).all())

    def at(self, leaves: Tensors) -> Tensors:
        """Return the outputs where the leaves themselves have other values."""
        with restored(self.leaves) as (memory, _), torch.enable_grad():
            for own, values in zip(memory, leaves, strict=True):
                _write(own, values)
            return tuple(output.detach().clone() for output in self.function(*self.leaves))

    def _batches_for(self, mode: Mode) -> Iterator[tuple[Batched, Callable[[Mode], Tensor]]]:
        """Yield the batch of many directions at one point, on the graph of the caller's own leaves.

        It takes less time than one of many points, whose forward pass is a batch too. Where torch has no batching rule
        for an operator, which it then calls row by row, the difference is a factor of ten.
        """
        if self._size_of(mode) > FEW:
            yield "directions", self._vmapped

    def jvp(self, tangent: Tensor) -> Tensor:
        """Return J u for a tangent u of shape (N,), by an ordinary call: with tangents that are no views."""
        points = tuple(leaf.detach() for leaf in self.leaves)
        own = tuple(t.clone() for t in tensors_of(tangent, self.leaves))
        return vector(pushforward(self.function)(*points, *own))

    def pulled(self, outputs: Tensors, cotangents: Tensors) -> Tensor:
        """Return J^T v of shape (N,), by an ordinary backward pass for each output, added up.

        An output takes no part in the pass of another one. That is not the same as a cotangent of zeros.
        """
        if len(outputs) == 1:
            return super().pulled(outputs, cotangents)
        found = torch.zeros(self.size[1], dtype=torch.float64)
        for output, own in zip(outputs, cotangents, strict=True):
            found += vector(vjp([output], self.leaves, [own])) if bool(own.any()) else 0
        return found

    def vjp_looped(self, cotangents: Tensor) -> Tensor:
        """Return V J for cotangents V of shape (K, M). An empty Jacobian takes no calls."""
        return super().vjp_looped(cotangents) if all(self.size) else cotangents.new_zeros(len(cotangents), self.size[1])

    def jvp_looped(self, tangents: Tensor) -> Tensor:
        """Return U J^T for tangents U of shape (K, N). An empty Jacobian takes no calls."""
        return super().jvp_looped(tangents) if all(self.size) else tangents.new_zeros(len(tangents), self.size[0])


def first_order(request: Request) -> Evidence:
    """Return the evidence for a function."""
    return Point(request, InPlace).evidence()


def second_order(request: Request, gaps: bool) -> Evidence:
    """Return the evidence for the pullback. Cotangents that are given and do not require grad are constant."""
    point, given = Point(request, InPlace), request.grad_outputs
    if given is None:
        return point.evidence("rev with gaps" if gaps else "rev")
    base = point.evidence()
    fixed = tuple(None if v.requires_grad else v for v in given)
    leaves = (*base.leaves, *(v for v in given if v.requires_grad))
    return InPlace(Pullback(base.function, len(base.leaves), fixed=fixed), leaves, modes=base.modes)


class OutputsChange(AssertionError):
    """The outputs of a function have another shape or dtype where its inputs are moved."""


def moved(function: Differentiable, leaves: Sequence[Tensor], steps: Tensor, step: float) -> Tensor:
    """Return the values at some steps from the leaves as rows, with one call per step, on the leaves themselves.

    Each leaf is moved where it is, so that a function that reads it in another way than as its argument is moved too.
    Raises OutputsChange; passes on the exceptions of the function. The leaves are as before in either case.
    """
    rows, expected = [], None
    with restored(leaves) as (memory, put_back), torch.enable_grad():
        for row in steps.masked_fill(steps == 0, -0.0):  # x + 0.0 would make 0.0 of -0.0
            for own, move in zip(memory, tensors_of(row, leaves), strict=True):
                _write(own, move, add=True)  # a leaf that is given twice moves with each of its places
            outputs = function(*leaves)
            rows.append(vector(outputs))
            put_back()
            found = [(output.shape, output.dtype) for output in outputs]
            expected = expected or found
            _expect_same(expected, found, step)
    return torch.stack(rows)


@contextmanager
def restored(leaves: Sequence[Tensor]) -> Iterator[tuple[list[Tensor], Callable[[], None]]]:
    """Yield the memory of the leaves, which may be written to, and what puts back the bits that it held."""
    memory = [leaf.data for leaf in leaves]  # unlike detach(), it has a version counter of its own
    before = [own.clone() for own in memory]

    def put_back() -> None:
        for own, values in zip(memory, before, strict=True):
            _write(own, values)

    try:
        yield memory, put_back
    finally:
        put_back()


@contextmanager
def watched(values: Sequence[object]) -> Iterator[Callable[[], bool]]:
    """Yield what tells, afterwards, whether strided tensors among the values have changed. They are then put back.

    Their memory is compared, so that writes count of which autograd knows nothing.
    """
    memory = [value.data for value in values if isinstance(value, Tensor) and value.layout is torch.strided]
    before = [own.clone() for own in memory]
    changed: list[Tensor] = []
    yield lambda: bool(changed)
    for own, kept in zip(memory, before, strict=True):
        if not torch.equal(own, kept) and not torch.allclose(own, kept, 0.0, 0.0, equal_nan=True):
            changed.append(own)
            _write(own, kept)


def _write(target: Tensor, values: Tensor, *, add: bool = False) -> None:
    """Write to a tensor, or add to it. Elements that share their memory are written one after the other."""
    if not shares_memory(target):
        _ = target.add_(values) if add else target.copy_(values)
        return
    for index in (values != 0).nonzero().tolist() if add else torch.ones(values.shape).nonzero().tolist():
        target[tuple(index)] = values[tuple(index)] + (target[tuple(index)] if add else 0)


def _expect_same(expected: Sequence[Kind], found: Sequence[Kind], step: float) -> None:
    kinds = zip(*expected, strict=True), zip(*found, strict=True)
    for what, one, other in zip(("shape", "dtype"), *kinds, strict=False):
        if one != other:
            raise OutputsChange(
                f"Expected `func` to return outputs with the same {what} when inputs are perturbed by {step}, but got: "
                f"{what}s {', '.join(map(str, one))} and {', '.join(map(str, other))}."
            )
