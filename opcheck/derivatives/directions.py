"""The directions in which a Jacobian is compared: all unit vectors, one for each color of a block pattern, or random.

Differences move the inputs along directions, forward mode has a tangent and reverse mode a cotangent for each. A set of
directions says how the results of these meet in matrices that are compared entry by entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Mode, Tensors
from opcheck.derivatives.coordinates import real_size
from opcheck.derivatives.cotangents import directions, probe
from opcheck.derivatives.differences import Differences
from opcheck.derivatives.request import Extent


class Directions:
    """All unit vectors, which show a Jacobian of shape (M, N) as it is."""

    extent: Extent = "full"
    sums = False
    """Whether an entry that is compared is a sum of many."""

    def __init__(self, size: tuple[int, int], inputs: Tensors) -> None:
        self.size, self.inputs = size, inputs

    @property
    def moved(self) -> Tensor:
        """What differences move the inputs along, of shape (K, N)."""
        return directions(self.size[1])

    @property
    def tangents(self) -> Tensor:
        """The directions for forward mode, of shape (K, N)."""
        return self.moved

    @property
    def cotangents(self) -> Tensor:
        """The directions for reverse mode, of shape (R, M)."""
        return directions(self.size[0])

    def of(self, mode: Mode) -> Tensor:
        """Return the directions for a mode."""
        return self.cotangents if mode == "reverse" else self.tangents

    def mix(self, count: int) -> Tensor:
        """Return factors for a sum of directions, to see whether a derivative is linear. Of few, none is small."""
        return probe(count) if self.extent == "full" else weights(count, 0)

    def shown(self, products: Tensor, mode: Mode) -> Tensor:
        """Return what is compared, from V J by reverse and from J U^T by forward mode."""
        return products

    def measured(self, slopes: Differences, mode: Mode) -> Differences:
        """Return the same from differences."""
        return slopes if mode == "forward" or self.extent == "full" else replace(slopes, weigh=self._weigh)

    def reached(self, where: Tensor, mode: Mode) -> Tensor:
        """Return the entries that are compared in which marked entries of the differences take part, as a mask."""
        return where if mode == "forward" else self._weigh(where.double(), sizes=True) != 0

    def inputs_of(self, where: Tensor) -> list[int]:
        """Return the inputs whose entries of the differences are marked; none if a direction moves all of them."""
        return [int(column) for column in where.any(dim=0).nonzero()]

    def columns_of(self, mode: Mode) -> Sequence[Tensor]:
        """Return the leaves that the columns of what is compared are about. By forward mode it is like differences."""
        return self.inputs

    def lengths(self, mode: Mode) -> Tensor | float:
        """Return what atol is multiplied by: the lengths of the directions that an entry is along."""
        return 1.0

    def _weigh(self, matrix: Tensor, *, sizes: bool = False) -> Tensor:
        """Return V A; with `sizes`, what errors of the size of A add up to."""
        return matrix


class Random(Directions):
    """A few random directions on each side: of V J, the products V J U with those of the inputs; J U as it is."""

    extent = "projected"
    sums = True

    def __init__(self, size: tuple[int, int], number: int) -> None:
        super().__init__(size, ())
        self.number = number

    @cached_property
    def moved(self) -> Tensor:
        """The random directions of inputs."""
        return directions(self.size[1], self.number, "inputs")

    @cached_property
    def cotangents(self) -> Tensor:
        """The random directions of outputs."""
        return directions(self.size[0], self.number, "outputs")

    def shown(self, products: Tensor, mode: Mode) -> Tensor:
        """Return V J U by reverse, J U by forward mode."""
        return products @ self.moved.T if mode == "reverse" else products

    def inputs_of(self, where: Tensor) -> list[int]:
        """Return none."""
        return []

    def lengths(self, mode: Mode) -> Tensor:
        """Return the Euclidean lengths: independent errors of entries add up like that."""
        lengths = self.moved.norm(dim=1)
        return torch.outer(self.cotangents.norm(dim=1), lengths) if mode == "reverse" else lengths

    def _weigh(self, matrix: Tensor, *, sizes: bool = False) -> Tensor:
        """Return V A, or how large the sums are if their terms, errors of the size of A, are independent."""
        return (self.cotangents.square() @ matrix.square()).sqrt() if sizes else self.cotangents @ matrix


LEAST_COTANGENTS = 8
"""The least number of cotangents where slices share an input: its gradient is a sum over slices, in which errors may
cancel."""


@dataclass(frozen=True)
class Axis:
    """An axis along which a function is independent."""

    size: int
    outputs: tuple[int, ...]
    """Its dim in each output."""
    leaves: tuple[int | None, ...]
    """Its dim in each leaf; None: all slices share the leaf."""


class Coloring:
    """The colors of the real coordinates of some tensors: those with the same place in their slices have one.

    dims: for each tensor its dim along each axis; None: it is in all slices as a whole. sizes: those of the axes.
    """

    def __init__(self, tensors: Tensors, dims: Sequence[Sequence[int | None]], sizes: Sequence[int]) -> None:
        self.tensors, self.dims, self.sizes = tensors, dims, sizes
        carried = [prod(size for dim, size in zip(own, sizes, strict=True) if dim is not None) for own in dims]
        self.counts = [real_size(tensor) // slices for tensor, slices in zip(tensors, carried, strict=True)]
        """How many colors each tensor has."""
        self.count = sum(self.counts)

    @cached_property
    def places(self) -> Tensor:
        """The coordinate of each color in each slice, of shape (slices, colors)."""
        columns, start, sizes = [], 0, self.sizes
        for tensor, own in zip(self.tensors, self.dims, strict=True):
            count, carried = real_size(tensor), [dim for dim in own if dim is not None]
            coordinates = torch.arange(start, start + count).view(*tensor.shape, 1 + tensor.is_complex())
            front = coordinates.movedim(carried, list(range(len(carried))))
            front = front.reshape(*(1 if dim is None else size for dim, size in zip(own, sizes, strict=True)), -1)
            columns.append(front.expand(*sizes, -1).reshape(prod(sizes), -1))
            start += count
        return torch.cat(columns, 1)

    @cached_property
    def colors(self) -> Tensor:
        """The color of each coordinate."""
        return self._by_coordinate(torch.arange(self.count))

    @cached_property
    def slices(self) -> Tensor:
        """The slice of each coordinate; one of them if it is in several."""
        return self._by_coordinate(torch.arange(len(self.places)).unsqueeze(1))

    def _by_coordinate(self, values: Tensor) -> Tensor:
        numbers = torch.empty(sum(map(real_size, self.tensors)), dtype=torch.int64)
        return numbers.scatter_(0, self.places.flatten(), values.expand(self.places.shape).flatten())

    def spread(self, values: Tensor) -> Tensor:
        """Return a direction for each color, with the values of its coordinates and zeros elsewhere, as rows."""
        spread = torch.zeros(self.count, len(values), dtype=torch.float64)
        return spread.scatter_(0, self.colors.unsqueeze(0), values.unsqueeze(0))


class Colors(Directions):
    """A direction for each color of a Jacobian that is block-diagonal along some axes (Curtis, Powell and Reid, 1974).

    The inputs that have the same place in their slices have one color, and so do outputs. One direction serves all
    slices at once. What a slice has in common with others (a weight, say) is moved element by element. Directions for
    automatic differentiation have a weight of their own in every slice, so that what a gradient leaks from one slice to
    another does not cancel. By forward mode, and by differences, the entries of a row are compared, one of each color;
    by reverse mode, sums over the slices that share an input, and single entries for all other inputs.
    """

    extent = "structured"

    def __init__(self, axes: tuple[Axis, ...], size: tuple[int, int], outputs: Tensors, inputs: Tensors) -> None:
        super().__init__(size, inputs)
        sizes = [axis.size for axis in axes]
        self.of_inputs = Coloring(inputs, [*zip(*(axis.leaves for axis in axes), strict=True)], sizes)
        self.of_outputs = Coloring(outputs, [*zip(*(axis.outputs for axis in axes), strict=True)], sizes)
        is_shared = any(None in axis.leaves for axis in axes)
        self.turns = -(-LEAST_COTANGENTS // self.of_outputs.count) if is_shared else 1
        """How many cotangents there are for each color of the outputs."""

    @cached_property
    def columns(self) -> Tensor:
        """The input coordinate of each color in the slice of each output coordinate, of shape (M, K)."""
        return self.of_inputs.places[self.of_outputs.slices]

    @cached_property
    def moved(self) -> Tensor:
        """One color of all slices for each direction."""
        return self.of_inputs.spread(torch.ones(self.size[1], dtype=torch.float64))

    @cached_property
    def tangents(self) -> Tensor:
        """The same with weights: every slice has its own."""
        return self.of_inputs.spread(weights(self.size[1], 1))

    @cached_property
    def weights(self) -> Tensor:
        """The weights of the outputs, of shape (turns, M)."""
        return torch.stack([weights(self.size[0], 2 + turn) for turn in range(self.turns)])

    @cached_property
    def cotangents(self) -> Tensor:
        """The weights of one color for each direction, in turns."""
        return torch.cat([self.of_outputs.spread(own) for own in self.weights])

    def shown(self, products: Tensor, mode: Mode) -> Tensor:
        """Return V J by reverse mode, and the entries of each row by forward mode."""
        return products if mode == "reverse" else products / weights(self.size[1], 1)[self.columns]

    def inputs_of(self, where: Tensor) -> list[int]:
        """Return the inputs of the marked entries."""
        return sorted({*self.columns[where].tolist()})

    def columns_of(self, mode: Mode) -> Sequence[Tensor]:
        """Return the leaves by reverse mode, else one slice of each, as far as sizes and dtypes go."""
        if mode == "reverse":
            return self.inputs
        pairs = zip(self.inputs, self.of_inputs.counts, strict=True)
        return [torch.empty(n // (1 + x.is_complex()), dtype=x.dtype, device="meta") for x, n in pairs]

    def _weigh(self, matrix: Tensor, *, sizes: bool = False) -> Tensor:
        """Return V A of shape (R, N), for a matrix A given by its entries in the colors of a row, of shape (M, K)."""
        weights = self.weights.abs() if sizes else self.weights
        rows, (_, width) = self.of_outputs.colors.unsqueeze(1), self.size
        places = (rows * width + self.columns).reshape(1, -1).expand(self.turns, -1)
        sums = torch.zeros(self.turns, self.of_outputs.count * width, dtype=torch.float64)
        return sums.scatter_add_(1, places, (weights.unsqueeze(2) * matrix).flatten(1)).reshape(-1, width)


def weights(size: int, number: int) -> Tensor:
    """Return random numbers between 1 and 2 in size, of both signs: the same ones every time."""
    numbers = probe(size, 300 + number)
    return numbers + numbers.sign()
