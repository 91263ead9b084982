"""Jacobians by automatic differentiation, row by row and column by column, and the functions they are made of."""

from __future__ import annotations

import torch
from torch import Tensor

from opcheck.derivatives.coordinates import real_size, to_real, units
from opcheck.derivatives.dual import dual_level, make_dual, tangent_of
from opcheck.derivatives.engine import Function


def vjp(outputs: tuple[Tensor, ...], leaves: tuple[Tensor, ...], cotangents: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return one ordinary backward pass: J^T v for each leaf, zeros where a leaf is not used."""
    pairs = [(output, v) for output, v in zip(outputs, cotangents, strict=True) if output.requires_grad]
    if not pairs:
        return tuple(torch.zeros_like(leaf) for leaf in leaves)
    found = torch.autograd.grad(
        [output for output, _ in pairs], leaves, [v for _, v in pairs], retain_graph=True, allow_unused=True
    )
    return tuple(torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True))


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


def vjp_function(function: Function, count: int) -> Function:
    """Return g(x, v) = vjp(f, x)(v), with `count` leaves x, as a function that can be differentiated again."""

    def pulled_back(*arguments: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            given = arguments[:count]
            # A view, not detach(), which would drop the tangents of forward over reverse.
            leaves = tuple(x if x.requires_grad else x.view_as(x).requires_grad_() for x in given)
            outputs = tuple(output for output in function(*leaves) if output.requires_grad)
            found = torch.autograd.grad(outputs, leaves, arguments[count:], create_graph=True, allow_unused=True)
        return tuple(torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True))

    return pulled_back
