"""Numerical derivatives: central and one-sided differences along several directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Differentiable, Tensors
from opcheck.derivatives.coordinates import rows_of, tensors_of, vector

FITS = 1 << 15
"""How many numbers are looked at together where only the largest one counts."""


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

    weigh: Callable[..., Tensor] | None = None
    """Turns a matrix A of shape (M, K) into V A for cotangents V, which is compared in its place; with `sizes`, into
    what errors of the size of A add up to. None: A itself is compared."""

    @cached_property
    def jacobian(self) -> Tensor:
        """Central differences (f(x + h u) - f(x - h u)) / 2h, as columns: of shape (M, K)."""
        return self._shown((self.above - self.below).mul_(0.5 / self.step).T)

    @cached_property
    def right(self) -> Tensor:
        """One-sided differences (f(x + h u) - f(x)) / h, of shape (M, K)."""
        return self._shown((self.above - self.base).div_(self.step).T)

    @cached_property
    def left(self) -> Tensor:
        """One-sided differences (f(x) - f(x - h u)) / h, of shape (M, K)."""
        return self._shown((self.base - self.below).div_(self.step).T)

    @property
    def bend(self) -> Tensor:
        """The difference of the two sides: h f'' if f is smooth, the jump of f' at a kink."""
        return self._shown((self.above - self.base).add_(self.below).sub_(self.base).div_(self.step).T)

    def rounding(self, unit: float) -> Tensor:
        """Return what rounding f to a unit adds to the error of the central differences, of shape (M, K)."""
        return self.error_by(torch.maximum(self.above.abs(), self.below.abs()).mul_(unit))

    def error_by(self, errors: Tensor) -> Tensor:
        """Return what errors of the values, of shape (K, M), add to the error of the differences, of shape (M, K)."""
        error = (errors / self.step).T
        return error if self.weigh is None else self.weigh(error, sizes=True)

    def _shown(self, matrix: Tensor) -> Tensor:
        return matrix if self.weigh is None else self.weigh(matrix)

    @cached_property
    def most_bend(self) -> float:
        """The largest disagreement of the two sides; NaN if any value is NaN."""
        if not self.above.numel():
            return 0.0
        pieces = 1 + self.above.numel() // FITS  # what fits into a cache takes a fraction of the time
        most = [
            torch.sub(above, self.base).add_(below).sub_(self.base).abs_().max()
            for above, below in zip(self.above.tensor_split(pieces), self.below.tensor_split(pieces), strict=True)
            if len(above)
        ]
        return float(torch.stack(most).max()) / self.step


def differences(values: Tensor, step: float) -> Differences:
    """Return the differences from values at a stencil, of shape (2 K + 1, M)."""
    count = len(values) // 2
    return Differences(values[:count], values[-1], values[count:-1], step)


def stencil(point: Tensor, along: Tensor, step: float) -> Tensor:
    """Return x + h u for each direction u of shape (K, N), then x - h u, and x, as rows."""
    steps = along * step
    return point + torch.cat([steps, -steps, torch.zeros(1, len(point), dtype=torch.float64)])


def stencil_points(point: Tensor, along: Tensor, step: float, *, with_base: bool = True) -> Iterator[Tensor]:
    """Yield the rows of a stencil, in memory that is used again."""
    moved = torch.empty_like(point)
    for own in (step, -step):
        for direction in along:
            yield torch.mul(direction, own, out=moved).add_(point)
    if with_base:
        yield point


def batched(function: Callable[..., Tensors], rows: Tensor, like: Sequence[Tensor], most: int) -> Tensor:
    """Return what a function of batches gives for rows, as rows; `most` of them per call.

    Its arguments are batches of tensors like `like`. Passes on its exceptions, and those of vmap.
    """
    values = []
    for some in torch.split(rows, most):
        values.append(rows_of(function(*tensors_of(some, like)), len(some)))
    return torch.cat(values)


def looped(function: Differentiable, leaves: Sequence[Tensor], points: Iterable[Tensor]) -> Tensor:
    """Return the values at some points as rows, with one call per point. Passes on the function's exceptions."""
    with torch.no_grad():
        return torch.stack([vector(function(*tensors_of(point, leaves))) for point in points])
