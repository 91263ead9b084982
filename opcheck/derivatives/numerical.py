"""Jacobians by central differences, one coordinate at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from opcheck.derivatives.coordinates import real_size, to_real, units
from opcheck.derivatives.engine import Function


def numerical_jacobian(function: Function, leaves: tuple[Tensor, ...], eps: float) -> list[list[Tensor]]:
    """Return the Jacobians J[output][leaf] in real coordinates, each of shape (real size of output, real size of leaf).

    Column j is (f(x + eps e_j) - f(x - eps e_j)) / (2 eps). Leaves must be strided; they are not changed.
    """
    points = [leaf.detach() for leaf in leaves]
    with torch.no_grad():
        outputs = function(*points)
        jacobians = [[_empty(output, leaf) for leaf in points] for output in outputs]
        for number, leaf in enumerate(points):
            for column, unit in enumerate(units(leaf)):
                above, below = (
                    function(*(point + step * unit if other == number else point for other, point in enumerate(points)))
                    for step in (eps, -eps)
                )
                for row, (high, low) in enumerate(zip(above, below, strict=True)):
                    jacobians[row][number][:, column] = (to_real(high) - to_real(low)) / (2 * eps)
    return jacobians


def _empty(output: Tensor, leaf: Tensor) -> Tensor:
    real = to_real(output).dtype
    dtype = real if real.is_floating_point else torch.float64
    return torch.zeros(real_size(output), real_size(leaf), dtype=dtype, device=output.device)
