"""Numerical derivatives: central and one-sided differences along several directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Differentiable, Tensors
from opcheck.derivatives.coordinates import rows_of, tensors_of, vector


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
    batched: bool = False
    """Whether the values come from one batch."""
    weigh: Callable[..., Tensor] | None = None
    """Maps a matrix A of shape (M, K) to V A for cotangents V, which is compared instead. With `sizes`, A holds the
    sizes of errors, and the result is the size of the errors of V A. None: A itself is compared."""

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
        """The difference of `right` and `left`, of shape (M, K): h f'' if f is smooth, the jump of f' at a kink."""
        return self._shown(self._second().div_(self.step).T)

    def rounding(self, unit: float) -> Tensor:
        """Return the error of the central differences caused by rounding f to a unit, of shape (M, K)."""
        return self.error_by(torch.maximum(self.above.abs(), self.below.abs()).mul_(unit))

    def error_by(self, errors: Tensor) -> Tensor:
        """Return the error of the differences, of shape (M, K), caused by errors of the values, of shape (K, M)."""
        error = (errors / self.step).T
        return error if self.weigh is None else self.weigh(error, sizes=True)

    def _shown(self, matrix: Tensor) -> Tensor:
        return matrix if self.weigh is None else self.weigh(matrix)

    @cached_property
    def most_bend(self) -> float:
        """The largest absolute difference of the two one-sided differences; NaN if any value is NaN."""
        return float(self._second().abs_().max()) / self.step if self.above.numel() else 0.0

    def _second(self) -> Tensor:
        """Return the second differences f(x + h u) - 2 f(x) + f(x - h u), of shape (K, M)."""
        return (self.above - self.base).add_(self.below).sub_(self.base)


def differences(values: Tensor, step: float, base: Tensor | None = None, *, batched: bool = False) -> Differences:
    """Return the differences from the values at the points of a `stencil`, of shape (2 K + 1, M).

    base: the values at the last point, if `values` lacks them.
    """
    count = len(values) // 2
    return Differences(values[:count], values[-1] if base is None else base, values[count : 2 * count], step, batched)


def stencil(point: Tensor, along: Tensor, step: float) -> Tensor:
    """Return the points x + h u for each direction u of shape (K, N), then x - h u, then x, as rows."""
    steps = along * step
    return point + torch.cat([steps, -steps, torch.zeros(1, len(point), dtype=torch.float64, device="cpu")])


def batched(function: Callable[..., Tensors], rows: Tensor, like: Sequence[Tensor], most: int) -> Tensor:
    """Evaluate a function of batches at points, given as rows, `most` points per call. Return the values as rows.

    The arguments of the function are batches of tensors like `like`. Passes on its exceptions, and those of vmap.
    """
    values = []
    for some in torch.split(rows, most):
        values.append(rows_of(function(*tensors_of(some, like)), len(some)))
    return torch.cat(values)


class OtherShapes(Exception):
    """Raised if the outputs of a function have other shapes near a point, where there is no derivative."""


def looped(function: Differentiable, leaves: Sequence[Tensor], points: Iterable[Tensor], size: int) -> Tensor:
    """Return the values at some points as rows, with one call per point. Passes on the function's exceptions.

    size: the number of values that are expected. Raises OtherShapes if there are more or fewer at some point, or if
        they move from one output to another.
    """
    rows, shapes = [], set()
    with torch.no_grad():
        for point in points:
            outputs = function(*tensors_of(point, leaves))
            rows.append(vector(outputs))
            shapes.add(tuple(output.shape for output in outputs))
    if len(shapes) > 1 or any(len(row) != size for row in rows):
        raise OtherShapes("the shapes of the outputs depend on the numbers, and change near the sample")
    return torch.stack(rows)
