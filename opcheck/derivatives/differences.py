"""Numerical derivatives: central and one-sided differences along several directions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Differentiable
from opcheck.derivatives.coordinates import tensors_of, vector, write

FITS = 1 << 15
"""How many numbers are looked at together where only the largest one counts."""


class Slopes(Protocol):
    """Central and one-sided differences, as matrices of the same shape."""

    @property
    def step(self) -> float:
        """The step."""
        ...

    @property
    def jacobian(self) -> Tensor:
        """Central differences."""
        ...

    @property
    def right(self) -> Tensor:
        """One-sided differences."""
        ...

    @property
    def left(self) -> Tensor:
        """One-sided differences on the other side."""
        ...

    @property
    def bend(self) -> Tensor:
        """The difference of the two sides."""
        ...

    def rounding(self, unit: float) -> Tensor:
        """Return what rounding f to a unit adds to the error of the central differences."""
        ...


@dataclass(frozen=True)
class Differences:
    """Values around a point x, in real coordinates: float64 matrices of shape (K directions, M outputs)."""

    above: Tensor
    """f(x + h u) for each direction u."""
    base: Tensor
    """f(x), of shape (M,)."""
    below: Tensor
    """f(x - h u)."""
    step: float

    @cached_property
    def jacobian(self) -> Tensor:
        """Central differences (f(x + h u) - f(x - h u)) / 2h, as columns: of shape (M, K)."""
        return (self.above - self.below).mul_(0.5 / self.step).T

    @cached_property
    def right(self) -> Tensor:
        """One-sided differences (f(x + h u) - f(x)) / h, of shape (M, K)."""
        return (self.above - self.base).div_(self.step).T

    @cached_property
    def left(self) -> Tensor:
        """One-sided differences (f(x) - f(x - h u)) / h, of shape (M, K)."""
        return (self.base - self.below).div_(self.step).T

    @cached_property
    def most_bend(self) -> float:
        """The largest disagreement of the two sides; NaN if any value is NaN."""
        if not self.above.numel():
            return 0.0
        pieces = 1 + self.above.numel() // FITS  # what fits into a cache takes a fraction of the time
        found = [
            torch.sub(above, self.base).add_(below).sub_(self.base).abs_().max()
            for above, below in zip(self.above.tensor_split(pieces), self.below.tensor_split(pieces), strict=True)
            if len(above)
        ]
        return float(torch.stack(found).max()) / self.step

    def rounding(self, unit: float) -> Tensor:
        """Return what rounding f to a unit adds to the error of the central differences, of shape (M, K)."""
        return torch.maximum(self.above.abs(), self.below.abs()).mul_(unit / self.step).T

    def along(self, cotangents: Tensor) -> Differences:
        """Return the differences of V f for directions V of shape (k, M): their Jacobian is V J, of shape (k, K)."""
        return Differences(self.above @ cotangents.T, cotangents @ self.base, self.below @ cotangents.T, self.step)

    @property
    def bend(self) -> Tensor:
        """The difference of the two sides: h f'' if f is smooth, the jump of f' at a kink."""
        return (self.above - self.base).add_(self.below).sub_(self.base).div_(self.step).T


def differences(values: Tensor, step: float) -> Differences:
    """Return the differences from values at a stencil, of shape (2 K + 1, M)."""
    count = len(values) // 2
    return Differences(values[:count], values[-1], values[count:-1], step)


def stencil_points(point: Tensor, along: Tensor, step: float) -> Iterator[Tensor]:
    """Yield the points of the stencil for directions of shape (K, N), in memory that is used again.

    They are those of `coordinates.steps`.
    """
    moved = torch.empty_like(point)
    for own in (step, -step):
        for direction in along:
            yield torch.mul(direction, own, out=moved).add_(point)
    yield point


def looped(function: Differentiable, leaves: Sequence[Tensor], points: Iterable[Tensor], count: int) -> Tensor:
    """Return the values at `count` points as rows, with one call per point.

    Every point is written into the same memory, in the format of the leaf. Passes on the function's exceptions.
    """
    values = torch.zeros(0)
    with torch.no_grad():
        memory = tensors_of(vector(leaves), leaves)
        for number, point in enumerate(points):
            write(point, memory)
            row = vector(function(*memory))
            values = values if number else row.new_empty(count, len(row))
            values[number] = row
    return values


def kinks(fine: Slopes, coarse: Slopes, allowed: Tensor) -> Tensor:
    """Return where the function has a kink or a jump, as a mask of shape (M, K), from differences at two steps.

    At a kink the one-sided differences disagree by more than `allowed`, while each agrees with itself at the other
    step. At a jump one of them grows as 1/h. Where the function is smooth both disagreements shrink with the step.
    """
    bend = fine.bend.abs()
    small = 0.2 * bend
    right, left = (fine.right - coarse.right).abs(), (fine.left - coarse.left).abs()
    kink = (right <= small) & (left <= small)
    ratio = coarse.step / fine.step
    steep = tuple(
        (one - ratio * other).abs() <= 0.2 * one.abs()
        for one, other in ((fine.right, coarse.right), (fine.left, coarse.left))
    )
    jump = (steep[0] & (left <= small)) | (steep[1] & (right <= small))
    # In the middle of a jump both of them grow, and do not differ.
    middle = steep[0] & steep[1] & (fine.jacobian.abs() > allowed)
    return ((bend > allowed) & (kink | jump)) | middle


def error_estimate(fine: Slopes, coarser: Iterable[Slopes], unit: float) -> Tensor:
    """Return an estimate of the error of the finest central differences, of shape (M, K).

    Their truncation error is proportional to h^2 and that at c h is c^2 times as large, so that the two differ by at
    least the error of the finer one for c^2 >= 2. What arithmetic inside f adds shrinks as 1/c, and shows as a
    difference too. The rounding of f itself to `unit` is added.
    """
    rounding = fine.rounding(unit)
    error = rounding
    for coarse in coarser:
        error = torch.maximum(error, rounding + (fine.jacobian - coarse.jacobian).abs())
    return error
