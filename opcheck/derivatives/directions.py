"""The directions along which a Jacobian is compared: unit vectors, one for each color of a block pattern, or random.

Differences move the inputs along directions. Forward mode takes a tangent, reverse mode a cotangent for each direction.
A set of directions defines how their results become matrices that are compared entry by entry.
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
from opcheck.derivatives.extent import Extent


class Directions:
    """All unit vectors, with which a Jacobian of shape (M, N) is compared as it is."""

    extent: Extent = "full"

    def __init__(self, size: tuple[int, int], inputs: Tensors) -> None:
        self.size, self.inputs = size, inputs

    @property
    def moved(self) -> Tensor:
        """The directions along which differences move the inputs, of shape (K, N)."""
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
        """Return the factors of a sum of directions, to test whether a derivative is linear.

        For unit vectors the sum is the `probe`. Other directions may be few: no factor is near zero, so that each
        counts.
        """
        return probe(count) if self.extent == "full" else weights(count, 0)

    def shown(self, products: Tensor, mode: Mode) -> Tensor:
        """Return the matrix to compare, from V J by reverse mode or from J U^T by forward mode."""
        return products

    def measured(self, slopes: Differences, mode: Mode) -> Differences:
        """Return the differences such that their `jacobian` has the form of the matrix to compare."""
        return slopes if mode == "forward" or self.extent == "full" else replace(slopes, weigh=self._weigh)

    def reached(self, where: Tensor, mode: Mode) -> Tensor:
        """Return a mask of the compared entries that depend on marked entries of the differences."""
        return where if mode == "forward" else self._weigh(where.double(), sizes=True) != 0

    def inputs_of(self, where: Tensor) -> list[int]:
        """Return the inputs whose entries of the differences are marked; empty if each direction moves all inputs."""
        return [int(column) for column in where.any(dim=0).nonzero()]

    def columns_of(self, mode: Mode) -> Sequence[Tensor]:
        """Return the tensors whose coordinates are the columns of the matrix to compare.

        By forward mode its columns are those of the differences.
        """
        return self.inputs

    def lengths(self, mode: Mode) -> Tensor | float:
        """Return the factor of atol for each compared entry: the length of the directions it belongs to."""
        return 1.0

    def _weigh(self, matrix: Tensor, *, sizes: bool = False) -> Tensor:
        """Return V A; with `sizes`, the size of the errors of V A for errors of the size of A."""
        return matrix


class Random(Directions):
    """A few random directions on each side. Reverse mode compares V J U, forward mode J U."""

    extent = "projected"

    def __init__(self, size: tuple[int, int], number: int) -> None:
        super().__init__(size, ())
        self.number = number

    @cached_property
    def moved(self) -> Tensor:
        """The random directions of inputs, of shape (K, N)."""
        return directions(self.size[1], self.number, "inputs")

    @cached_property
    def cotangents(self) -> Tensor:
        """The random directions of outputs, of shape (K, M)."""
        return directions(self.size[0], self.number, "outputs")

    def shown(self, products: Tensor, mode: Mode) -> Tensor:
        """Return V J U by reverse mode, J U by forward mode."""
        return products @ self.moved.T if mode == "reverse" else products

    def inputs_of(self, where: Tensor) -> list[int]:
        """Return an empty list: each direction moves all inputs."""
        return []

    def lengths(self, mode: Mode) -> Tensor:
        """Return the Euclidean lengths of the directions, since the squares of independent errors add up."""
        lengths = self.moved.norm(dim=1)
        return torch.outer(self.cotangents.norm(dim=1), lengths) if mode == "reverse" else lengths

    def _weigh(self, matrix: Tensor, *, sizes: bool = False) -> Tensor:
        """Return V A; with `sizes`, the size of its errors if the errors of A, of the size of A, are independent."""
        return (self.cotangents.square() @ matrix.square()).sqrt() if sizes else self.cotangents @ matrix


LEAST_COTANGENTS = 8
"""The least number of cotangents where slices share an input. Its gradient is a sum over slices, in which errors may
cancel."""


@dataclass(frozen=True)
class Axis:
    """An axis, such as the batch, along which the slices of a function are independent."""

    size: int
    outputs: tuple[int, ...]
    """The dim of each output along the axis."""
    leaves: tuple[int | None, ...]
    """The dim of each leaf along the axis; None if all slices share the leaf."""


class Coloring:
    """The colors of the real coordinates of some tensors. Coordinates at the same place of their slices share a color.

    dims: for each tensor its dim along each axis; None if each slice includes the whole tensor.
    sizes: the sizes of the axes.
    """

    def __init__(self, tensors: Tensors, dims: Sequence[Sequence[int | None]], sizes: Sequence[int]) -> None:
        self.tensors, self.dims, self.sizes = tensors, dims, sizes
        carried = [prod(size for dim, size in zip(own, sizes, strict=True) if dim is not None) for own in dims]
        self.counts = [real_size(tensor) // slices for tensor, slices in zip(tensors, carried, strict=True)]
        """The number of colors of each tensor."""
        self.count = sum(self.counts)

    @cached_property
    def places(self) -> Tensor:
        """The coordinate of each color in each slice, of shape (slices, colors)."""
        columns, start, sizes = [], 0, self.sizes
        for tensor, own in zip(self.tensors, self.dims, strict=True):
            count, carried = real_size(tensor), [dim for dim in own if dim is not None]
            coordinates = torch.arange(start, start + count, device="cpu").view(*tensor.shape, 1 + tensor.is_complex())
            front = coordinates.movedim(carried, list(range(len(carried))))
            front = front.reshape(*(1 if dim is None else size for dim, size in zip(own, sizes, strict=True)), -1)
            columns.append(front.expand(*sizes, -1).reshape(prod(sizes), -1))
            start += count
        return torch.cat(columns, 1)

    @cached_property
    def colors(self) -> Tensor:
        """The color of each coordinate."""
        return self._by_coordinate(torch.arange(self.count, device="cpu"))

    @cached_property
    def slices(self) -> Tensor:
        """The slice of each coordinate; any of them if the coordinate is in several."""
        return self._by_coordinate(torch.arange(len(self.places), device="cpu").unsqueeze(1))

    def _by_coordinate(self, values: Tensor) -> Tensor:
        numbers = torch.empty(sum(map(real_size, self.tensors)), dtype=torch.int64, device="cpu")
        return numbers.scatter_(0, self.places.flatten(), values.expand(self.places.shape).flatten())

    def spread(self, values: Tensor) -> Tensor:
        """Return one direction per color, as rows: the values at the coordinates of that color, zeros elsewhere."""
        spread = torch.zeros(self.count, len(values), dtype=torch.float64, device="cpu")
        return spread.scatter_(0, self.colors.unsqueeze(0), values.unsqueeze(0))


class Colors(Directions):
    """One direction per color of a Jacobian that is block-diagonal along some axes (Curtis, Powell and Reid, 1974).

    Inputs with the same place in their slices share a color, and so do outputs, so that one direction serves all
    slices. An input that slices share (a weight, say) is moved element by element. Directions for automatic
    differentiation have a different weight in every slice, so that what a gradient leaks from one slice to another does
    not cancel. Forward mode and differences compare the entries of each row, one per color. Reverse mode compares sums
    over the slices that share an input, and single entries for all other inputs.
    """

    extent = "structured"

    def __init__(self, axes: tuple[Axis, ...], size: tuple[int, int], outputs: Tensors, inputs: Tensors) -> None:
        super().__init__(size, inputs)
        sizes = [axis.size for axis in axes]
        self.of_inputs = Coloring(inputs, [*zip(*(axis.leaves for axis in axes), strict=True)], sizes)
        self.of_outputs = Coloring(outputs, [*zip(*(axis.outputs for axis in axes), strict=True)], sizes)
        is_shared = any(None in axis.leaves for axis in axes)
        self.turns = -(-LEAST_COTANGENTS // self.of_outputs.count) if is_shared else 1
        """The number of cotangents for each color of the outputs."""

    @cached_property
    def columns(self) -> Tensor:
        """The input coordinate of each color in the slice of each output coordinate, of shape (M, K)."""
        return self.of_inputs.places[self.of_outputs.slices]

    @cached_property
    def moved(self) -> Tensor:
        """The directions of inputs, of shape (K, N): ones at the coordinates of one color, in all slices."""
        return self.of_inputs.spread(torch.ones(self.size[1], dtype=torch.float64, device="cpu"))

    @cached_property
    def tangents(self) -> Tensor:
        """The directions for forward mode, of shape (K, N): those of `moved` with a different weight in every slice."""
        return self.of_inputs.spread(weights(self.size[1], 1))

    @cached_property
    def weights(self) -> Tensor:
        """The weights of the outputs, of shape (turns, M)."""
        return torch.stack([weights(self.size[0], 2 + turn) for turn in range(self.turns)])

    @cached_property
    def cotangents(self) -> Tensor:
        """The directions for reverse mode, of shape (R, M): for each turn, the weights of each color."""
        return torch.cat([self.of_outputs.spread(own) for own in self.weights])

    def shown(self, products: Tensor, mode: Mode) -> Tensor:
        """Return V J by reverse mode, or the entries of each row, one per color, by forward mode."""
        return products if mode == "reverse" else products / weights(self.size[1], 1)[self.columns]

    def inputs_of(self, where: Tensor) -> list[int]:
        """Return the inputs of the marked entries."""
        return sorted({*self.columns[where].tolist()})

    def columns_of(self, mode: Mode) -> Sequence[Tensor]:
        """Return the leaves by reverse mode.

        By forward mode, return meta tensors with the size and dtype of one slice of each leaf.
        """
        if mode == "reverse":
            return self.inputs
        pairs = zip(self.inputs, self.of_inputs.counts, strict=True)
        return [torch.empty(n // (1 + x.is_complex()), dtype=x.dtype, device="meta") for x, n in pairs]

    def _weigh(self, matrix: Tensor, *, sizes: bool = False) -> Tensor:
        """Return V A of shape (R, N), for a matrix A of shape (M, K) that holds the entries of each row by color."""
        weights = self.weights.abs() if sizes else self.weights
        rows, (_, width) = self.of_outputs.colors.unsqueeze(1), self.size
        places = (rows * width + self.columns).reshape(1, -1).expand(self.turns, -1)
        sums = torch.zeros(self.turns, self.of_outputs.count * width, dtype=torch.float64, device="cpu")
        return sums.scatter_add_(1, places, (weights.unsqueeze(2) * matrix).flatten(1)).reshape(-1, width)


def weights(size: int, number: int) -> Tensor:
    """Return reproducible random numbers of both signs, with absolute values between 1 and 2."""
    numbers = probe(size, 300 + number)
    return numbers + numbers.sign()
