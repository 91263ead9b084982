"""Directions in which derivatives are looked at, as rows of matrices: units for whole Jacobians, random ones else."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Side = Literal["inputs", "outputs"]


def probe(size: int, number: int = 0) -> Tensor:
    """Return a random direction of shape (size,) with coordinates in [-1, 1): the same one whenever it is asked for."""
    return torch.tensor(_numbers(size, number), dtype=torch.float64)


@lru_cache(maxsize=1024)
def _numbers(size: int, number: int) -> tuple[float, ...]:
    # Numbers can be kept: unlike a tensor, nobody can write to them.
    generator = torch.Generator().manual_seed(1000 * size + number)
    numbers: list[float] = (torch.rand(size, generator=generator, dtype=torch.float64) * 2 - 1).tolist()
    return tuple(numbers)


def directions(size: int, count: int | None = None, side: Side = "inputs") -> Tensor:
    """Return the unit vectors, of shape (size, size), or `count` random directions, of shape (count, size).

    Those of inputs and outputs have nothing to do with each other, also where there are as many of both.
    """
    if count is None:
        return torch.eye(size, dtype=torch.float64)
    first = 100 if side == "inputs" else 200
    return torch.stack([probe(size, first + number) for number in range(count)])


def with_probe(size: int, count: int | None = None, side: Side = "inputs") -> Tensor:
    """Return the directions and, in the last row, the probe."""
    return torch.cat([directions(size, count, side), probe(size).unsqueeze(0)])


def stencil(size: int, step: float, count: int | None = None) -> Tensor:
    """Return the moves of central differences as rows: h u for each direction u, then -h u, then none at all."""
    above = directions(size, count) * step
    return torch.cat([above, -above, torch.zeros(1, size, dtype=torch.float64)])


def asked(size: int, count: int | None, side: Side) -> Tensor:
    """Return the directions that a batch is asked about on one side, as rows: of projections the probe as well.

    What a whole Jacobian makes of the probe, its columns or rows tell.
    """
    return directions(size, None, side) if count is None else with_probe(size, count, side)


def side_by_side(size: tuple[int, int], count: int | None = None) -> tuple[Tensor, Tensor]:
    """Return tangents of shape (K, N) and cotangents of shape (K, M), for a Jacobian of shape (M, N).

    They are what a batch is asked about on each side, and zeros on the side that has fewer.
    """
    tangents, cotangents = asked(size[1], count, "inputs"), asked(size[0], count, "outputs")
    rows = max(len(tangents), len(cotangents))
    padded = [functional.pad(some, (0, 0, 0, rows - len(some))) for some in (tangents, cotangents)]
    return padded[0], padded[1]
