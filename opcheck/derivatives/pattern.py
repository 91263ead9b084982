"""Where the Jacobian of a function that is independent along some axes may be other than zero.

Along the axes a function has slices. A row of its Jacobian, one coordinate of an output, has entries for the inputs of
its own slice, and for what slices have in common. Inputs that have the same place in their slices form a group, and so
do outputs: directions move all inputs of a group at once, or weigh all outputs of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from opcheck.derivatives.coordinates import parts, real_size

FIRST, TURN, PART, OF_PART = 25, 49, 50, 51
"""Labels of dims for einsum: the dims of a leaf from the first on; those of an output are 0, 1, ..."""


@dataclass(frozen=True)
class Axis:
    """An axis along which a function is independent."""

    size: int
    outputs: tuple[int, ...]
    """Its dim in each output."""
    leaves: tuple[int | None, ...]
    """Its dim in each leaf; None: all slices share the leaf."""

    @property
    def carriers(self) -> tuple[bool, ...]:
        """Which leaves have the axis."""
        return tuple(dim is not None for dim in self.leaves)


@dataclass(frozen=True)
class Pattern:
    """The pattern of a Jacobian of M outputs by N inputs: K entries in each row, one for each group of inputs."""

    axes: tuple[Axis, ...]
    outputs: tuple[Tensor, ...]
    leaves: tuple[Tensor, ...]

    @property
    def shared(self) -> bool:
        """Whether there are inputs that several slices have in common."""
        return any(None in axis.leaves for axis in self.axes)

    @cached_property
    def group_counts(self) -> list[int]:
        """How many groups the inputs of each leaf form; K is the sum."""
        return [
            real_size(leaf) // prod(axis.size for axis in self.axes if axis.leaves[k] is not None)
            for k, leaf in enumerate(self.leaves)
        ]

    @cached_property
    def row_counts(self) -> list[int]:
        """How many groups the coordinates of each output form."""
        return [real_size(output) // prod(axis.size for axis in self.axes) for output in self.outputs]

    @cached_property
    def slice_leaves(self) -> list[Tensor]:
        """One slice of each leaf, as far as its size and its dtype go."""
        return [
            torch.empty(count // _parts(leaf), dtype=leaf.dtype, device="meta")
            for count, leaf in zip(self.group_counts, self.leaves, strict=True)
        ]

    @cached_property
    def groups(self) -> Tensor:
        """The group of each input coordinate, of shape (N,)."""
        dims = [[axis.leaves[k] for axis in self.axes] for k in range(len(self.leaves))]
        return _numbered(self.leaves, dims, self.group_counts)

    @cached_property
    def rows(self) -> Tensor:
        """The group of each output coordinate, of shape (M,)."""
        dims = [[axis.outputs[k] for axis in self.axes] for k in range(len(self.outputs))]
        return _numbered(self.outputs, dims, self.row_counts)

    @cached_property
    def slices(self) -> Tensor:
        """The number of the slice that each output coordinate is in, of shape (M,)."""
        return self._number([True] * len(self.axes))

    @cached_property
    def columns(self) -> Tensor:
        """The input coordinate of each group that is in the slice of an output coordinate, of shape (M, K)."""
        found, start = [], 0
        for k, (leaf, count) in enumerate(zip(self.leaves, self.group_counts, strict=True)):
            dims = [axis.leaves[k] for axis in self.axes]
            own = [dim for dim in dims if dim is not None]
            coordinates = torch.arange(start, start + real_size(leaf)).view(*leaf.shape, _parts(leaf))
            slices = coordinates.movedim(own, list(range(len(own)))).reshape(-1, count)
            found.append(slices[self._number([dim is not None for dim in dims])])
            start += real_size(leaf)
        return torch.cat(found, 1)

    def _number(self, counted: Sequence[bool]) -> Tensor:
        """Return the number of the slice that each output coordinate is in, along some of the axes."""
        found = []
        for k, output in enumerate(self.outputs):
            shape = (*output.shape, _parts(output))
            number = torch.zeros((), dtype=torch.int64)
            for axis, counts in zip(self.axes, counted, strict=True):
                if counts:
                    along = [axis.size if dim == axis.outputs[k] else 1 for dim in range(len(shape))]
                    number = number * axis.size + torch.arange(axis.size).view(along)
            found.append(number.expand(shape).reshape(-1))
        return torch.cat(found)

    def gathered(self, matrix: Tensor, weights: Tensor) -> Tensor:
        """Return V A of shape (R, N), for a matrix A given by its entries in the pattern, of shape (M, K).

        weights: of shape (turns, M). V has them all, in as many rows for each turn as there are groups of outputs.
        """
        sizes = [real_size(output) for output in self.outputs]
        bands = zip(parts(matrix, sizes), parts(weights, sizes, 1), strict=True)
        found = [list(self._of_output(i, band, own)) for i, (band, own) in enumerate(bands)]
        columns = [_joined(column, 1) for column in zip(*found, strict=True)]
        return _joined(columns, 2).reshape(-1, sum(map(real_size, self.leaves)))

    def _of_output(self, i: int, band: Tensor, weights: Tensor) -> Iterator[Tensor]:
        """Yield the part of V A of one output and each leaf, of shape (turns, groups of the output, N of the leaf)."""
        output = self.outputs[i]
        shape, above = (*output.shape, _parts(output)), [*range(output.dim()), PART]
        kept = [dim for dim in above if dim not in [axis.outputs[i] for axis in self.axes]]
        split = weights.reshape(len(weights), *shape)
        for j, (leaf, entries) in enumerate(zip(self.leaves, parts(band, self.group_counts, 1), strict=True)):
            along = {axis.leaves[j]: axis.outputs[i] for axis in self.axes if axis.leaves[j] is not None}
            own = [dim for dim in range(leaf.dim()) if dim not in along]
            terms = entries.reshape(*shape, *(leaf.shape[dim] for dim in own), _parts(leaf))
            labels = [along.get(dim, FIRST + dim) for dim in range(leaf.dim())]
            found: Tensor = torch.einsum(
                terms, [*above, *(FIRST + dim for dim in own), OF_PART], split, [TURN, *above],
                [TURN, *kept, *labels, OF_PART],
            )  # fmt: skip
            yield found.reshape(len(weights), -1, real_size(leaf))


def _numbered(tensors: Sequence[Tensor], dims: Sequence[Sequence[int | None]], counts: Sequence[int]) -> Tensor:
    """Return a number for each coordinate of some tensors, the same for all slices of a tensor along some dims."""
    found, first = [], 0
    for tensor, given, count in zip(tensors, dims, counts, strict=True):
        shape = (*tensor.shape, _parts(tensor))
        own = [1 if dim in given else size for dim, size in enumerate(shape)]
        found.append(torch.arange(first, first + count).view(own).expand(shape).reshape(-1))
        first += count
    return torch.cat(found)


def _joined(pieces: Sequence[Tensor], dim: int) -> Tensor:
    return torch.cat(list(pieces), dim) if len(pieces) > 1 else pieces[0]


def _parts(tensor: Tensor) -> int:
    return 2 if tensor.is_complex() else 1
