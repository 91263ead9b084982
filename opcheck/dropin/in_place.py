"""The evidence for `opcheck.gradcheck`: on the caller's own tensors, moved in place where copies are not the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Differentiable, Mode, Pullback, Tensors, pushforward, vjp
from opcheck.derivatives.batching import Batched, sweep
from opcheck.derivatives.coordinates import located, shares_memory, split, tensors_of, vector
from opcheck.derivatives.cotangents import probe, steps
from opcheck.derivatives.differences import Differences, differences
from opcheck.derivatives.point import Point
from opcheck.derivatives.question import Request

FEW = 4
"""Up to how many directions ordinary calls on the caller's own tensors take less time than a batch of copies."""
Kind = tuple[torch.Size, torch.dtype]
"""The shape and the dtype of an output."""


class InPlace(Point):
    """Evidence whose numerical side moves the leaves themselves, unless moving copies comes to the same.

    A function may read a leaf in another way than as its argument: a captured parameter, a tensor that is given twice,
    a view of the same memory. It may need what only the caller's tensors have: a graph, hooks, a place in a larger
    storage. Evidence from copies is then about another function. One call on the leaves, moved by a random step,
    tells.
    """

    _alone = False
    """Whether batches of points were given up: what one step needs, the others need too."""

    def graph(self) -> Tensors:
        """Return the outputs: all looks share the graph of the first call, as those of torch do."""
        return self.outputs

    def batched_differences(self, along: Tensor, step: float) -> Differences | None:
        """Return the differences from a batch of copies; None if it fails, or is about another function."""
        if self._alone or self.size[1] <= FEW or not all(self.size):
            return None
        slopes = self._of_batch(along, step)
        self._alone = slopes is None
        return slopes

    def looped_differences(self, along: Tensor, step: float) -> Differences:
        """Return the differences where the leaves themselves are moved, by one call for each point."""
        if not all(self.size):  # nothing to move, or nothing that moves
            return differences(self.value.repeat(1 + 2 * len(along), 1), step)
        moves = along * step
        values = moved(self.function, self.leaves, torch.cat([moves, -moves]), step)
        return Differences(values[: len(along)], self.value, values[len(along) :], step)

    def _of_batch(self, along: Tensor, step: float) -> Differences | None:
        weights = probe(len(along), 2)
        one = (weights @ along * step).unsqueeze(0)
        points = self.coordinates + torch.cat([one, steps(along, step)])
        try:
            values = sweep(self.function, self.leaves, points, batch=self.chunk).values
        except Exception:  # it cannot be batched
            return None
        slopes = differences(values[1:], step)
        return slopes if self._moves_alike(one, values[0], slopes, weights) else None

    def _moves_alike(self, one: Tensor, copied: Tensor, slopes: Differences, weights: Tensor) -> bool:
        """Tell whether the leaves themselves, moved by a random step, give what copies give, up to rounding."""
        off = moved(self.function, self.leaves, one, slopes.step)[0] - copied
        slope = slopes.jacobian.abs() @ weights.abs()
        return bool((off.abs() <= 1e-6 * slopes.step * slope + 32 * self.unit * copied.abs()).all())

    def at(self, leaves: Tensors) -> Tensors:
        """Return the outputs where the leaves themselves have other values."""
        with restored(self.leaves) as memory, torch.enable_grad():
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
        gradient = torch.zeros(self.size[1], dtype=torch.float64)
        for output, own in zip(outputs, cotangents, strict=True):
            gradient += vector(vjp([output], self.leaves, [own])) if bool(own.any()) else 0
        return gradient

    def vjp_looped(self, cotangents: Tensor) -> Tensor:
        """Return V J for cotangents V of shape (K, M). An empty Jacobian takes no calls."""
        return super().vjp_looped(cotangents) if all(self.size) else cotangents.new_zeros(len(cotangents), self.size[1])

    def jvp_looped(self, tangents: Tensor) -> Tensor:
        """Return U J^T for tangents U of shape (K, N). An empty Jacobian takes no calls."""
        return super().jvp_looped(tangents) if all(self.size) else tangents.new_zeros(len(tangents), self.size[0])


def first_order(request: Request) -> Point:
    """Return the evidence for a function."""
    return InPlace.of(request)


def second_order(request: Request, gaps: bool) -> Point:
    """Return the evidence for the pullback. Cotangents that are given and do not require grad are constant."""
    base, cotangents = InPlace.of(request), request.grad_outputs
    if cotangents is None:
        return base.derived("rev with gaps" if gaps else "rev")
    fixed = tuple(None if v.requires_grad else v for v in cotangents)
    leaves = (*base.leaves, *(v for v in cotangents if v.requires_grad))
    return InPlace(Pullback(base.function, len(base.leaves), fixed=fixed), leaves, modes=base.modes)


class OutputsChange(AssertionError):
    """The outputs of a function have another shape or dtype where its inputs are moved."""


def moved(function: Differentiable, leaves: Sequence[Tensor], steps: Tensor, step: float) -> Tensor:
    """Return the values at some steps from the leaves as rows, with one call per step, on the leaves themselves.

    Each leaf is moved where it is, so that a function that reads it in another way than as its argument is moved too.
    Raises OutputsChange; passes on the exceptions of the function. The leaves are as before in either case.
    """
    rows, expected = [], None
    with restored(leaves) as memory, torch.enable_grad():
        for moves in _moves(steps, memory):
            before = [own.clone() for own, _ in moves]
            for own, move in moves:
                _add(own, move)  # a leaf that is given twice moves with each of its places
            outputs = function(*leaves)
            rows.append(vector(outputs))
            for (own, _), values in zip(moves, before, strict=True):
                _write(own, values)
            kinds = [(output.shape, output.dtype) for output in outputs]
            if kinds != expected:
                _expect_same(expected := expected or kinds, kinds, step)
    return torch.stack(rows)


def _moves(steps: Tensor, memory: Sequence[Tensor]) -> Iterator[Sequence[tuple[Tensor, Tensor | float]]]:
    """Yield what of the memory of some leaves each step moves, and by how much: single elements if that is all."""
    if any(own.is_conj() for own in memory) or bool((steps.count_nonzero(1) != 1).any()):
        for row in steps.masked_fill(steps == 0, -0.0):  # x + 0.0 would make 0.0 of -0.0
            yield list(zip(memory, tensors_of(row, memory), strict=True))
        return
    coordinates: list[int] = steps.abs().argmax(1).tolist()
    elements = {coordinate: _element(coordinate, memory) for coordinate in coordinates}
    for coordinate, move in zip(coordinates, steps.sum(1).tolist(), strict=True):
        yield [(elements[coordinate], move)]


def _element(coordinate: int, memory: Sequence[Tensor]) -> Tensor:
    """Return the place in memory of a coordinate, of rank 0."""
    number, own = located(coordinate, memory)
    index, part = split(own, memory[number])
    return torch.view_as_real(memory[number])[index][int(part == "imag")] if part else memory[number][index]


@contextmanager
def restored(leaves: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yield the memory of the leaves, which may be written to. It then holds the bits that it held before."""
    memory = [leaf.data for leaf in leaves]  # unlike detach(), it has a version counter of its own
    before = [own.clone() for own in memory]
    try:
        yield memory
    finally:
        for own, values in zip(memory, before, strict=True):
            _write(own, values)


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


def _write(target: Tensor, values: Tensor) -> None:
    """Write to a tensor. Elements that share their memory are written one after the other."""
    if not shares_memory(target):
        target.copy_(values)
        return
    for index in torch.ones(values.shape).nonzero().tolist():
        target[tuple(index)] = values[tuple(index)]


def _add(target: Tensor, move: Tensor | float) -> None:
    """Add to a tensor. What several elements share moves with each of them."""
    if isinstance(move, float) or not shares_memory(target):
        target.add_(move)
        return
    for index in (move != 0).nonzero().tolist():
        target[tuple(index)] += move[tuple(index)]


def _expect_same(expected: Sequence[Kind], got: Sequence[Kind], step: float) -> None:
    kinds = zip(*expected, strict=True), zip(*got, strict=True)
    for what, one, other in zip(("shape", "dtype"), *kinds, strict=False):
        if one != other:
            raise OutputsChange(
                f"Expected `func` to return outputs with the same {what} when inputs are perturbed by {step}, but got: "
                f"{what}s {', '.join(map(str, one))} and {', '.join(map(str, other))}."
            )
