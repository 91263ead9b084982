"""Jacobians in real coordinates, one coordinate at a time: an independent source for what the package computes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from opcheck.derivatives.autodiff import Function, dual_level, make_dual, tangent_of, vjp
from opcheck.derivatives.coordinates import real_size


def to_real(tensor: Tensor) -> Tensor:
    """Return a tensor's real coordinates as a vector of shape (real_size,), real and imaginary parts alternating."""
    dense = tensor if tensor.layout is torch.strided else tensor.to_dense()
    flat = dense.detach().resolve_conj().resolve_neg().reshape(-1)
    return torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat


def units(like: Tensor) -> Iterator[Tensor]:
    """Yield the unit vectors of the real coordinates, in the shape and dtype of `like`: for complex dtypes 1 and 1j."""
    for index in range(like.numel()):
        for unit in (1, 1j) if like.is_complex() else (1,):
            vector = torch.zeros(like.shape, dtype=like.dtype, device=like.device)
            vector.view(-1)[index].fill_(unit)
            yield vector


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


def reverse_jacobian(function: Function, leaves: tuple[Tensor, ...]) -> list[list[Tensor]]:
    """Return J[output][leaf] in real coordinates by one backward pass for each row.

    A gradient g that torch returns for a cotangent v satisfies Re<v, J dx> = Re<g, dx>, so that in real coordinates
    g = J^T v for complex tensors too (https://pytorch.org/docs/stable/notes/autograd.html, complex autograd).
    """
    outputs = function(*leaves)
    jacobians = []
    for output in outputs:
        rows = []
        for unit in units(output):
            rows.append([to_real(g) for g in vjp((output,), leaves, (unit,))])
        jacobians.append(
            [
                torch.stack([row[index] for row in rows]) if rows else torch.zeros(0, real_size(leaf))
                for index, leaf in enumerate(leaves)
            ]
        )
    return jacobians


def forward_jacobian(function: Function, leaves: tuple[Tensor, ...]) -> list[list[Tensor]]:
    """Return J[output][leaf] in real coordinates by one forward-mode evaluation for each column."""
    points = [leaf.detach() for leaf in leaves]
    outputs = function(*points)
    columns: list[list[list[Tensor]]] = [[[] for _ in leaves] for _ in outputs]
    for number, leaf in enumerate(points):
        for unit in units(leaf):
            with dual_level():
                dual = [make_dual(p, unit) if other == number else p for other, p in enumerate(points)]
                for row, output in enumerate(function(*dual)):
                    tangent = tangent_of(output)
                    columns[row][number].append(to_real(torch.zeros_like(output) if tangent is None else tangent))
    return [
        [
            torch.stack(found, dim=1) if found else torch.zeros(real_size(output), 0)
            for found in columns[row]
        ]
        for row, output in enumerate(outputs)
    ]  # fmt: skip
