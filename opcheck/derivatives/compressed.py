"""All entries of a block-diagonal Jacobian from a few directions, as Curtis, Powell and Reid compress a sparse one.

If a function is independent along some axes, the derivative of one slice of the outputs is by one slice of the inputs,
and one direction serves all slices at once. What a slice has in common with others (a weight, say) is moved element by
element. In directions for automatic differentiation every slice has a weight of its own, so that what a gradient leaks
from one slice to another does not cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Protocol

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Mode
from opcheck.derivatives.coordinates import probe
from opcheck.derivatives.differences import Differences, Slopes
from opcheck.derivatives.pattern import Pattern

At = Callable[[float], Slopes]

COTANGENTS = 8
"""The fewest cotangents if there are inputs that slices have in common: their gradients are sums over slices."""


LARGE = 4096
"""From how many coordinates of inputs and outputs on ordinary calls, one by one, take less time than a batch."""


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

    def __init__(self, of: Derivatives, pattern: Pattern) -> None:
        self.of, self.pattern = of, pattern
        self._numerical: dict[tuple[float, bool], Differences] = {}
        self._sides: dict[tuple[Mode, bool], Sides] = {}

    @cached_property
    def large(self) -> bool:
        """Whether ordinary calls, one by one, take less time than a batch."""
        return len(self.pattern.rows) + len(self.pattern.groups) > LARGE

    @cached_property
    def units(self) -> Tensor:
        """The directions of differences, of shape (K, N): each moves one element of every slice."""
        groups = self.pattern.groups
        return _spread(groups, sum(self.pattern.group_counts), torch.ones(len(groups), dtype=torch.float64))

    @cached_property
    def tangents(self) -> Tensor:
        """The directions of forward mode, of shape (K, N): those of differences, with weights."""
        return _spread(self.pattern.groups, sum(self.pattern.group_counts), self.tangent_weights)

    @cached_property
    def tangent_weights(self) -> Tensor:
        """The weights of inputs, of shape (N,)."""
        return _weights(len(self.pattern.groups), 1)

    @cached_property
    def cotangents(self) -> Tensor:
        """The directions of reverse mode, of shape (R, M)."""
        rows, count = self.pattern.rows, sum(self.pattern.row_counts)
        return torch.cat([_spread(rows, count, weights) for weights in self.cotangent_weights])

    @cached_property
    def cotangent_weights(self) -> Tensor:
        """The weights of outputs, in as many turns as there are cotangents for each: of shape (turns, M)."""
        turns = -(-COTANGENTS // sum(self.pattern.row_counts)) if self.pattern.shared else 1
        return torch.stack([_weights(len(self.pattern.rows), 2 + turn) for turn in range(turns)])

    def numerical(self, step: float, *, looped: bool = False) -> Differences:
        """Return the differences for all groups of inputs."""
        looped = looped or self.large
        if (step, looped) not in self._numerical:
            of = self.of.looped_differences if looped else self.of.batched_differences
            self._numerical[step, looped] = of(self.units, step) or self.numerical(step, looped=True)
        return self._numerical[step, looped]

    def sides(self, mode: Mode, *, looped: bool = False) -> Sides:
        """Return both Jacobians in the form of a mode. Passes on the exceptions of the derivative."""
        looped = looped or self.large
        key = mode, looped
        if key not in self._sides:
            self._sides[key] = self._of_reverse(looped) if mode == "reverse" else self._of_forward(looped)
        return self._sides[key]

    def _of_forward(self, looped: bool) -> Sides:
        found, *linear = self._products("forward", self.tangents, looped)
        weight = self.tangent_weights[self.pattern.columns]
        return Sides(found.T / weight, partial(self.numerical, looped=looped), self.pattern.slice_leaves, *linear)

    def _of_reverse(self, looped: bool) -> Sides:
        found, *linear = self._products("reverse", self.cotangents, looped)
        at = cache(lambda step: Gathered(self.numerical(step, looped=looped), self.gathered))
        return Sides(found, at, self.of.leaves, *linear)

    def _products(self, mode: Mode, directions: Tensor, looped: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return the products of a mode as rows, and how far an ordinary call for a sum of them is off: see `Sides`."""
        found = self.of.products(mode, directions, looped=looped)
        mix = probe(len(directions), 3)
        again = self.of.products(mode, (mix @ directions).unsqueeze(0), looped=True)[0]
        return found, (mix @ found - again).abs(), mix.abs() @ found.abs()

    def gathered(self, matrix: Tensor, *, sizes: bool = False) -> Tensor:
        """Return V A of shape (R, N), for a matrix A given by its entries in the pattern, of shape (M, K).

        sizes: add up as if all terms had the same sign, as for bounds.
        """
        return self.pattern.gathered(matrix, self.cotangent_weights.abs() if sizes else self.cotangent_weights)


@dataclass(frozen=True)
class Gathered:
    """Differences of V f, made of those along groups of inputs: see `Slopes`."""

    of: Differences
    gather: Callable[..., Tensor]

    @property
    def step(self) -> float:
        """The step."""
        return self.of.step

    @cached_property
    def jacobian(self) -> Tensor:
        """V J, of shape (R, N)."""
        return self.gather(self.of.jacobian)

    @property
    def right(self) -> Tensor:
        """The same by one-sided differences."""
        return self.gather(self.of.right)

    @property
    def left(self) -> Tensor:
        """The same by one-sided differences."""
        return self.gather(self.of.left)

    @property
    def bend(self) -> Tensor:
        """The difference of the two."""
        return self.gather(self.of.bend)

    def rounding(self, unit: float) -> Tensor:
        """Return what rounding f to a unit adds to the error, at most."""
        return self.gather(self.of.rounding(unit), sizes=True)


def _spread(numbers: Tensor, count: int, values: Tensor) -> Tensor:
    """Return a matrix of shape (count, len(numbers)) that has each value in the row of its number, and zeros."""
    found = torch.zeros(count, len(numbers), dtype=torch.float64)
    return found.scatter_(0, numbers.unsqueeze(0), values.unsqueeze(0))


def _weights(size: int, number: int) -> Tensor:
    """Return random numbers between 1 and 2 in size, of both signs: the same ones every time."""
    found = probe(size, 300 + number)
    return found + found.sign()
