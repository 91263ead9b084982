"""Finds the dims along which a function works independently, from its values alone.

A function is independent along an axis, such as the batch, if slice i of its outputs depends on slice i of its inputs
and on inputs that all slices share, and on nothing else. To find out, several inputs are drawn anew, and each slice
takes its values from one of them. Every slice of the outputs must then be, bit by bit, what it is where all slices take
theirs from that one. The slices are numbered at random, and the digits of a number say which input its slice takes.
Two numbers differ in some digit, so that log(n) calls put every slice to the test of every other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

import torch
from torch import Tensor

from opcheck.derivatives.pattern import Axis
from opcheck.derivatives.question import NO_REFUSAL

Tensors = tuple[Tensor, ...]
Values = Callable[[Tensors], Tensors]
"""Leaves to outputs, neither with a graph. The outputs share no memory with anything that is written to later."""

BITS = 2
"""Of a digit: slices take their values from four inputs. With more of them there are fewer digits."""
LEAST = 3
"""The fewest digits: a single one would tell little about a handful of slices."""
SOME = 1000
"""How many random factors are enough."""
NEAR = 1e-3
"""The relative change of an input, where the function raises for one that is drawn anew."""


def independent_axes(values: Values, leaves: Tensors, outputs: Tensors) -> tuple[Axis, ...]:
    """Return the axes along which a function is independent, in the order of the first output's dims.

    outputs: those at the leaves. Axes that the same leaves have are tried together, and one by one if that fails. A
    function that raises for other inputs has none.
    """
    search = Search(values, leaves, outputs)
    found: list[Axis] = []
    for _, group in groupby(sorted(search.candidates(), key=lambda axis: axis.carriers), lambda axis: axis.carriers):
        axes = tuple(group)
        if search.holds(axes):
            found += axes
        elif len(axes) > 1:
            found += [axis for axis in axes if search.holds((axis,))]
    return tuple(sorted(found, key=lambda axis: axis.outputs))


class Refused(Exception):
    """The function is not defined for other inputs, or its outputs have other shapes there."""


class Search:
    """Looks for the axes of a function around a point. The numbers it draws are the same ones every time."""

    def __init__(self, values: Values, leaves: Tensors, outputs: Tensors) -> None:
        self.values = values
        self.leaves = tuple(leaf.detach() for leaf in leaves)
        self.outputs = tuple(output.detach() for output in outputs)
        self.generator = torch.Generator().manual_seed(len(leaves))

    # candidates: which dim of which leaf goes with which dim of an output

    def candidates(self) -> list[Axis]:
        """Return the axes that one change of each leaf leaves possible.

        A leaf changes in half of its slices along each dim. A dim of an output goes with a dim of the same size, if
        what changes along it is within the same half.
        """
        if not self.outputs or any(not output.numel() for output in self.outputs):
            return []
        try:
            reaches = [self._reach(number) for number in range(len(self.leaves))]
        except Refused:
            return []
        found: list[Axis] = []
        for dim, size in enumerate(self.outputs[0].shape):
            matched = [self._match(reach, dim, found, k) for k, reach in enumerate(reaches)]
            if size < 2 or all(own is None for own in matched):
                continue
            others = [self._other(reaches, matched, dim, found, k) for k in range(1, len(self.outputs))]
            if None not in others:
                found.append(Axis(size, (dim, *(other for other in others if other is not None)), tuple(matched)))
        return found

    def _reach(self, number: int) -> Reach:
        leaf = self.leaves[number]
        halves, changes = [], torch.ones(leaf.shape, dtype=torch.bool)
        for dim, size in enumerate(leaf.shape):
            turn = list(leaf.shape[:dim]).count(size)  # dims of the same size change in different slices
            order = torch.randperm(size, generator=torch.Generator().manual_seed(size)).roll(turn)
            half = torch.zeros(size, dtype=torch.bool)
            half[order[: max(1, size // 2)]] = True
            halves.append(half)
            changes &= _along(half, dim, leaf.dim())
        by = leaf * 0.0117 + 0.00131  # a small change is enough to be seen, and likely to be valid
        moved = torch.addcmul(leaf, by, changes.to(leaf))
        found = self._called({number: moved})
        reached = []
        for before, after in zip(self.outputs, found, strict=True):
            changed = _differ(before, after).cpu()
            reached.append([_slices(changed, [dim]).any(1) for dim in range(changed.dim())])
        return Reach(halves, reached)

    def _match(self, reach: Reach, dim: int, taken: Sequence[Axis], number: int) -> int | None:
        """Return the dim of a leaf that may go with a dim of the first output; None if there is none."""
        leaf, output = self.leaves[number], self.outputs[0]
        used = {axis.leaves[number] for axis in taken}
        fits = [
            own for own, size in enumerate(leaf.shape)
            if size == output.shape[dim] and own not in used and reach.allows(own, 0, dim)
        ]  # fmt: skip
        aligned = (dim - output.dim() + leaf.dim(), dim)  # as broadcasting does, or counted from the first
        return next((own for own in (*aligned, *fits) if own in fits), None)

    def _other(
        self, reaches: Sequence[Reach], matched: Sequence[int | None], dim: int, taken: Sequence[Axis], number: int
    ) -> int | None:
        """Return the dim of a further output that goes with dims of the leaves."""
        output, size = self.outputs[number], self.outputs[0].shape[dim]
        used = {axis.outputs[number] for axis in taken}
        fits = [
            own for own in range(output.dim())
            if output.shape[own] == size and own not in used
            and all(of is None or reach.allows(of, number, own) for reach, of in zip(reaches, matched, strict=True))
        ]  # fmt: skip
        return next((own for own in (dim, *fits) if own in fits), None)

    # the proof

    def holds(self, axes: Sequence[Axis]) -> bool:
        """Tell whether a function is independent along axes that the same leaves have, all at once."""
        for draw in (self._of_both_signs, self._anew, self._near):
            try:
                return self._holds(axes, draw)
            except Refused:
                continue
        return False

    def _holds(self, axes: Sequence[Axis], draw: Callable[[Tensor, int], Tensor]) -> bool:
        count = prod(axis.size for axis in axes)
        bits = 1 if count == 2 else BITS
        dims = {k: [axis.leaves[k] for axis in axes] for k, own in enumerate(axes[0].carriers) if own}
        places = [[axis.outputs[k] for axis in axes] for k in range(len(self.outputs))]

        def called(slices: dict[int, Tensor]) -> Iterator[Tensor]:
            found = self._called({k: _whole(own, self.leaves[k], dims[k]) for k, own in slices.items()})
            return (_slices(output, own) for output, own in zip(found, places, strict=True))

        inputs = {k: Choice(_slices(self.leaves[k], own), 1 << bits) for k, own in dims.items()}
        outputs = [Choice(_slices(output, own), 1 << bits) for output, own in zip(self.outputs, places, strict=True)]
        for turn in range(1, 1 << bits):
            for one, new in zip(
                outputs, called({k: one.put(turn, draw(one.first, turn)) for k, one in inputs.items()}), strict=True
            ):
                one.put(turn, new)
        for rows in self._rows(count, bits):
            mixed = called({k: one.at(rows) for k, one in inputs.items()})
            if not all(_are_equal(new, one.at(rows)) for one, new in zip(outputs, mixed, strict=True)):
                return False
        return True

    def _rows(self, count: int, bits: int) -> Iterator[Tensor]:
        """Yield rows of the slices of several inputs, one after the other: for each slice one of its rows.

        The digits of a random numbering of slices say which. Any two numbers differ in one of them.
        """
        numbers, needed = self._shuffled(count), -(-(count - 1).bit_length() // bits)
        order, rows = torch.arange(count), torch.empty_like(numbers)
        for place in range(max(needed, LEAST)):
            again = place >= needed  # there are few slices: they are numbered anew
            digits = self._shuffled(count) if again else torch.bitwise_right_shift(numbers, bits * place, out=rows)
            yield digits.bitwise_and_((1 << bits) - 1).mul_(count).add_(order)

    def _called(self, changed: dict[int, Tensor]) -> Tensors:
        """Return the outputs where some leaves have other values, which nobody else needs."""
        given = tuple(
            _in_format(changed[k], leaf) if k in changed else leaf.clone() for k, leaf in enumerate(self.leaves)
        )
        try:
            found = self.values(given)
        except NO_REFUSAL:
            raise
        except Exception as error:
            raise Refused from error
        if [(new.shape, new.dtype) for new in found] != [(old.shape, old.dtype) for old in self.outputs]:
            raise Refused
        return found

    def _of_both_signs(self, slices: Tensor, turn: int) -> Tensor:
        """Return the same, every other time with the other sign: a comparison with zero comes out otherwise."""
        drawn = self._anew(slices, turn)
        return drawn if turn % 2 else drawn.neg_()

    def _anew(self, slices: Tensor, turn: int) -> Tensor:
        """Return other values for slices: those of other slices, which are likely to be valid, a little changed."""
        factors = self._random((min(len(slices), SOME),)).mul_(0.1).add_(1).repeat(-(-len(slices) // SOME))
        drawn = slices.roll(self._less(len(slices)), 0).mul_(_like(slices, factors[: len(slices), None]))
        same = drawn == slices
        return drawn + _like(slices, self._random(slices.shape)) * same if bool(same.any()) else drawn

    def _near(self, slices: Tensor, turn: int) -> Tensor:
        """Return values that are hardly different."""
        return slices + (slices.abs() + 0.1) * _like(slices, NEAR * self._random(slices.shape))

    def _random(self, shape: Sequence[int]) -> Tensor:
        return torch.rand(*shape, generator=self.generator, dtype=torch.float64).mul_(2).sub_(1)

    def _less(self, count: int) -> int:
        return int(torch.randint(count, (), generator=self.generator))

    def _shuffled(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.generator)


def _like(slices: Tensor, drawn: Tensor) -> Tensor:
    """Return numbers in the dtype of slices, and on their device, which may not have double precision."""
    return drawn.to(slices.dtype).to(slices.device)


@dataclass(frozen=True)
class Reach:
    """What a change of one leaf changes."""

    halves: Sequence[Tensor]
    """For each dim of the leaf, in which slices it changes."""
    reached: Sequence[Sequence[Tensor]]
    """For each output and each of its dims, which slices change."""

    def allows(self, dim: int, output: int, place: int) -> bool:
        """Tell whether an output changes along one of its dims only where the leaf does along `dim`."""
        half, reached = self.halves[dim], self.reached[output][place]
        return len(half) == len(reached) and not bool((reached & ~half).any())


class Choice:
    """The slices of several tensors of one shape, to take each from one of them."""

    def __init__(self, first: Tensor, count: int) -> None:
        self.first = first
        """Of shape (slices, elements), like the others."""
        self._all = first.new_empty(count, *first.shape)
        self._all[0] = first
        self._flat = self._all.flatten(0, 1) if first.shape[1] != 1 else self._all.flatten()  # half the time of rows
        self._taken = torch.empty_like(first, memory_format=torch.contiguous_format)

    def put(self, number: int, slices: Tensor) -> Tensor:
        """Set the slices of one of the tensors, and return them."""
        self._all[number] = slices
        return slices

    def at(self, rows: Tensor) -> Tensor:
        """Return the slices in some rows of all tensors, one after the other; in memory that is used again."""
        torch.index_select(
            self._flat, 0, rows.to(self._flat.device), out=self._taken.view(len(rows), *self._flat.shape[1:])
        )
        return self._taken


def _along(vector: Tensor, dim: int, rank: int) -> Tensor:
    return vector.view([-1 if k == dim else 1 for k in range(rank)])


def _slices(tensor: Tensor, dims: Sequence[int | None]) -> Tensor:
    """Return the slices along some dims, of shape (slices, elements of one)."""
    own = [dim for dim in dims if dim is not None]
    front = tensor.movedim(own, list(range(len(own))))
    return front.reshape(prod(front.shape[: len(own)]), prod(front.shape[len(own) :]))


def _whole(slices: Tensor, like: Tensor, dims: Sequence[int | None]) -> Tensor:
    """Return the inverse of `_slices`: a tensor of the shape of `like`."""
    own = [dim for dim in dims if dim is not None]
    front = like.movedim(own, list(range(len(own))))
    return slices.reshape(front.shape).movedim(list(range(len(own))), own)


def _in_format(values: Tensor, like: Tensor) -> Tensor:
    """Return values in the memory format of a tensor."""
    return values if values.stride() == like.stride() else torch.empty_like(like).copy_(values)


def _differ(one: Tensor, other: Tensor) -> Tensor:
    """Tell where two tensors differ. NaN does not differ from NaN."""
    return (one != other) & ~(one.isnan() & other.isnan())


def _are_equal(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other) or not bool(_differ(one, other).any())
