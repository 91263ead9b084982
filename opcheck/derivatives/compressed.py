"""All entries of a block-diagonal Jacobian from a few directions, as Curtis, Powell and Reid compress a sparse one.

If a function is independent along some axes, the derivative of one slice of the outputs is by one slice of the inputs,
and one direction serves all slices at once. What a slice has in common with others (a weight, say) is moved element by
element. In directions for automatic differentiation every slice has a weight of its own, so that what a gradient leaks
from one slice to another does not cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Mode
from opcheck.derivatives.coordinates import probe
from opcheck.derivatives.differences import Differences
from opcheck.derivatives.structure import Axis

At = Callable[[float], Differences]

COTANGENTS = 8
"""The fewest cotangents if there are inputs that slices have in common: their gradients are sums over slices."""


class Derivatives(Protocol):
    """A function at a point, and its derivatives along given directions: see `evidence.Evidence`."""

    leaves: tuple[Tensor, ...]

    @property
    def unit(self) -> float:
        """The rounding unit of its arithmetic."""
        ...

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The outputs at the leaves."""
        ...

    def batched_differences(self, along: Tensor, step: float) -> Differences | None:
        """Return differences along directions of shape (K, N) from a batch; None if there is none to rely on."""
        ...

    def looped_differences(self, along: Tensor, step: float) -> Differences:
        """Return the same by one call for each point."""
        ...

    def products(self, mode: Mode, directions: Tensor, *, looped: bool) -> Tensor:
        """Return J^T v or J u for each direction, as rows."""
        ...


@dataclass(frozen=True)
class Pattern:
    """Where a Jacobian of shape (M, N) may be other than zero: K entries in each row, one for each group of inputs."""

    groups: Tensor
    """Of shape (N,): the group of each input coordinate. Those of one group are moved together."""
    columns: Tensor
    """Of shape (M, K): the input coordinate that is in group k and in the slice of an output coordinate."""
    rows: Tensor
    """Of shape (M,): which cotangent an output coordinate belongs to."""
    slices: Tensor
    """Of shape (M,): the number of the slice that an output coordinate is in."""
    shared: bool
    """Whether there are inputs that several slices have in common."""

    @property
    def size(self) -> tuple[int, int, int, int]:
        """The numbers of outputs, inputs, groups of inputs and cotangents."""
        count = int(self.rows.max()) + 1
        return len(self.rows), len(self.groups), self.columns.shape[1], max(count, COTANGENTS * self.shared)


def sizes(axes: Sequence[Axis], outputs: Sequence[Tensor], leaves: Sequence[Tensor]) -> tuple[int, int]:
    """Return the numbers of groups and of cotangents that a pattern has, before it is made."""
    of_leaves = [
        _parts(leaf) * leaf.numel() // prod(axis.size for axis in axes if axis.leaves[k] is not None)
        for k, leaf in enumerate(leaves)
    ]
    of_outputs = [_parts(y) * y.numel() // prod(axis.size for axis in axes) for y in outputs]
    return sum(of_leaves), sum(of_outputs)


def pattern(axes: Sequence[Axis], outputs: Sequence[Tensor], leaves: Sequence[Tensor]) -> Pattern:
    """Return the pattern of the Jacobian of a function that is independent along some axes."""
    rows: list[Tensor] = []
    places: list[list[Tensor]] = [[] for _ in axes]
    for k, output in enumerate(outputs):
        shape = (*output.shape, _parts(output))
        first = 0 if not rows else int(rows[-1].max()) + 1
        rows.append(_numbered(shape, [axis.outputs[k] for axis in axes], first))
        for axis, own in zip(axes, places, strict=True):
            along = [axis.size if dim == axis.outputs[k] else 1 for dim in range(len(shape))]
            own.append(torch.arange(axis.size).view(along).expand(shape).reshape(-1))
    labels = [torch.cat(own) for own in places]
    groups, columns, start, group = [], [], 0, 0
    for k, leaf in enumerate(leaves):
        shape = (*leaf.shape, _parts(leaf))
        carried = [(axis, label, axis.leaves[k]) for axis, label in zip(axes, labels, strict=True)]
        dims = [dim for _, _, dim in carried if dim is not None]
        groups.append(_numbered(shape, dims, group))
        coordinates = torch.arange(start, start + prod(shape)).view(shape).movedim(dims, list(range(len(dims))))
        slices = coordinates.reshape(prod(coordinates.shape[: len(dims)]), -1)
        number = torch.zeros(len(labels[0]), dtype=torch.int64)
        for axis, label, dim in carried:
            number = number * axis.size + label if dim is not None else number
        columns.append(slices[number])
        start, group = start + prod(shape), group + slices.shape[1]
    shared = any(None in axis.leaves for axis in axes)
    every = torch.zeros_like(labels[0])
    for axis, label in zip(axes, labels, strict=True):
        every = every * axis.size + label
    return Pattern(torch.cat(groups), torch.cat(columns, 1), torch.cat(rows), every, shared)


def _numbered(shape: Sequence[int], dims: Sequence[int], first: int) -> Tensor:
    """Return a number for each coordinate of a tensor, the same for all slices along some dims."""
    own = [1 if dim in dims else size for dim, size in enumerate(shape)]
    return torch.arange(first, first + prod(own)).view(own).expand(*shape).reshape(-1)


def _parts(tensor: Tensor) -> int:
    return 2 if tensor.is_complex() else 1


@dataclass(frozen=True)
class Sides:
    """Both Jacobians of a mode, in one form: that of the products that automatic differentiation gives."""

    analytical: Tensor
    at: At
    """The numerical one by differences at a step."""
    leaves: Sequence[Tensor]
    """What the columns are of: all leaves, or one slice of each."""
    off: Tensor
    """By how much the product of a random sum of directions is not that sum of their products, a vector."""
    scale: Tensor
    """The sum of the moduli of the terms of that sum."""


class Compressed:
    """The Jacobian of a function that is independent along some axes, from few directions.

    By forward mode, and by differences, it has the shape (M, K) of `Pattern.columns`. By reverse mode it is V J, of
    shape (R, N), for R cotangents, each with a random weight in every slice; where no input is shared, these are again
    all entries that may be other than zero.
    """

    def __init__(self, of: Derivatives, axes: Sequence[Axis]) -> None:
        self.of, self.axes = of, tuple(axes)
        self.pattern = pattern(axes, of.outputs, of.leaves)
        self._numerical: dict[tuple[float, bool], Differences] = {}
        self._sides: dict[tuple[Mode, bool], Sides] = {}

    @cached_property
    def slice_leaves(self) -> list[Tensor]:
        """What K columns are of, as far as its size and dtype go: one slice of each leaf."""
        own = [prod(axis.size for axis in self.axes if axis.leaves[k] is not None) for k in range(len(self.of.leaves))]
        pairs = zip(self.of.leaves, own, strict=True)
        return [torch.empty(leaf.numel() // count, dtype=leaf.dtype, device="meta") for leaf, count in pairs]

    @cached_property
    def units(self) -> Tensor:
        """The directions of differences, of shape (K, N): each moves one element of every slice."""
        return _indicators(self.pattern.groups, self.pattern.size[2])

    @cached_property
    def tangents(self) -> Tensor:
        """The directions of forward mode, of shape (K, N): those of differences, with weights."""
        return self.units * weights(self.pattern.size[1], 1)

    @cached_property
    def cotangents(self) -> Tensor:
        """The directions of reverse mode, of shape (R, M)."""
        outputs, _, _, most = self.pattern.size
        own = _indicators(self.pattern.rows, int(self.pattern.rows.max()) + 1)
        return torch.cat([own * weights(outputs, 2 + turn) for turn in range(-(-most // len(own)))])

    def numerical(self, step: float, *, looped: bool = False) -> Differences:
        """Return the differences for all groups of inputs."""
        if (step, looped) not in self._numerical:
            of = self.of.looped_differences if looped else self.of.batched_differences
            self._numerical[step, looped] = of(self.units, step) or self.numerical(step, looped=True)
        return self._numerical[step, looped]

    def sides(self, mode: Mode, *, looped: bool = False) -> Sides:
        """Return both Jacobians in the form of a mode. Passes on the exceptions of the derivative."""
        key = mode, looped
        if key not in self._sides:
            self._sides[key] = self._of_reverse(looped) if mode == "reverse" else self._of_forward(looped)
        return self._sides[key]

    def _of_forward(self, looped: bool) -> Sides:
        found, *linear = self._products("forward", self.tangents, looped)
        weight = weights(self.pattern.size[1], 1)[self.pattern.columns]
        return Sides(found.T / weight, partial(self.numerical, looped=looped), self.slice_leaves, *linear)

    def _of_reverse(self, looped: bool) -> Sides:
        found, *linear = self._products("reverse", self.cotangents, looped)

        def at(step: float) -> Differences:
            own = self.numerical(step, looped=looped)
            above, below = self.gathered(own.above), self.gathered(own.below)
            return Differences(above, self.gathered(own.base.expand_as(own.above)), below, step)

        return Sides(found, at, self.of.leaves, *linear)

    def _products(self, mode: Mode, directions: Tensor, looped: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return the products of a mode as rows, and how far an ordinary call for a sum of them is off: see `Sides`."""
        found = self.of.products(mode, directions, looped=looped)
        mix = probe(len(directions), 3)
        again = self.of.products(mode, (mix @ directions).unsqueeze(0), looped=True)[0]
        return found, (mix @ found - again).abs(), mix.abs() @ found.abs()

    def gathered(self, values: Tensor) -> Tensor:
        """Return V A for a matrix A of shape (M, K) with the pattern, given as (K, M), as columns: of shape (N, R)."""
        outputs, inputs, _, _ = self.pattern.size
        own = int(self.pattern.rows.max()) + 1
        places = (self.pattern.columns.T * own + self.pattern.rows).reshape(-1)
        gathered = []
        for turn in range(len(self.cotangents) // own):
            weighted = (values * weights(outputs, 2 + turn)).reshape(-1)
            total = torch.zeros(inputs * own, dtype=torch.float64)
            gathered.append(total.scatter_add_(0, places, weighted).view(inputs, own))
        return torch.cat(gathered, 1)


def _indicators(numbers: Tensor, count: int) -> Tensor:
    """Return for each number, as rows, where it is: of shape (count, len(numbers))."""
    return (numbers == torch.arange(count).unsqueeze(1)).double()


def weights(size: int, number: int) -> Tensor:
    """Return random numbers between 1 and 2 in size, of both signs: the same ones every time."""
    found = probe(size, 300 + number)
    return found + found.sign()
